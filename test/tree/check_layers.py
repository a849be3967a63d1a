"""Fails when a file includes a layer that it may not know, and when a file of the runtime sees MLIR or LLVM."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
may_include = {
    "dialect": {"dialect", "runtime/schema"},
    "passes": {"passes", "dialect", "runtime/schema"},
    "frontend": {"frontend", "dialect"},
    "codegen": {"codegen", "dialect", "runtime/schema"},
    "runtime": {"runtime"},
}
include = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
errors, files = [], 0
for layer, allowed in may_include.items():
    for path in sorted((root / layer).rglob("*")):
        if path.suffix not in {".h", ".cpp", ".td", ".cuh"}:
            continue
        files += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = include.match(line)
            if not match:
                continue
            name = match.group(1)
            where = f"{path.relative_to(root)}:{number}"
            if layer == "runtime" and name.startswith(("mlir/", "llvm/", "mlir-c/", "llvm-c/")):
                errors.append(f"{where}: the runtime includes {name}")
            first = name.split("/")[0]
            if first in {*may_include, "tools", "test"} and not name.startswith(tuple(a + "/" for a in allowed)):
                errors.append(f"{where}: {layer}/ includes {name}, expected only {', '.join(sorted(allowed))}")
if files < 50:
    errors.append(f"only {files} files found under {root}: wrong folder?")
print("\n".join(errors))
sys.exit(1 if errors else 0)
