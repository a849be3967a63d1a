# Configuration of every lit test. test/CMakeLists.txt makes one ctest entry per folder; by hand:
#   lit-22 -v build/test/dialect            (one folder)
#   lit-22 -v build/test/passes/kernels/lower-gdn.mlir
import os

import lit.formats

config.name = "qwen35"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
# Inputs of tests, and GoogleTest's own folders.
config.excludes = ["Inputs", "support", "unit"]
config.test_source_root = os.path.dirname(__file__)
path = [config.tools_dir, config.llvm_tools_dir, config.environment["PATH"]]
config.environment["PATH"] = os.pathsep.join(path)
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
config.substitutions.append(("%source_dir", config.source_dir))
config.substitutions.append(("%python", config.python))
if os.environ.get("QWEN35_TEST_GPU"):
    config.available_features.add("gpu")
