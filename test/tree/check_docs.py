"""Fails for an op without an example and for a pass without its Stage, Leaves alone and Numerics."""
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
errors, ops, passes = [], 0, 0
for page in ("qwen35", "qkern", "qplan", "qdist"):
    for section in re.split(r"^### ", (folder / f"{page}.md").read_text(), flags=re.M)[1:]:
        name = section.split("\n")[0]
        if not name.startswith("`" + page + "."):
            continue
        ops += 1
        if "```mlir" not in section:
            errors.append(f"{page}.md: {name} has no example")
for section in re.split(r"^### ", (folder / "passes.md").read_text(), flags=re.M)[1:]:
    name = section.split("\n")[0]
    passes += 1
    for heading in ("**Stage.**", "**Leaves alone.**", "**Numerics.**"):
        if heading not in section:
            errors.append(f"passes.md: {name} does not say {heading}")
if ops < 50 or passes < 8:
    errors.append(f"found {ops} ops and {passes} passes: did a page go missing?")
print("\n".join(errors))
sys.exit(1 if errors else 0)
