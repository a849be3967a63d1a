# Shared by the scripts beside it: packages, configuration, build. Source it from bash; it expects `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${QWEN35_BUILD_DIR:-$root/build}

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

packages=(
  clang-22 lld-22 liblld-22-dev libclang-rt-22-dev llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools
  cmake ninja-build libzstd-dev zlib1g-dev libffi-dev libxml2-dev libstdc++-12-dev
  libabsl-dev libprotobuf-dev protobuf-compiler libgtest-dev libgmock-dev libsodium-dev
  nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libopenmpi-dev openmpi-bin binutils python3 python3-psutil
)

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "all ${#packages[@]} Debian packages are installed"
    return
  fi
  echo "installing ${#missing[@]} of ${#packages[@]} Debian packages: ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || die "installing packages needs root; run as root: apt-get install ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get could not install: ${missing[*]} (full log: $log)"
  fi
  rm -f "$log"
}

report_cuda() {
  if ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so'; then
    echo "CUDA: NVRTC found: qwen35c --target sm_90a compiles for GPUs here"
  else
    echo "CUDA: NVRTC not found; only qwen35c --target sm_90a and the like need it"
  fi
}

configure() {
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
    -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld >"$build.configure.log" 2>&1 ||
    { tail -n 30 "$build.configure.log" >&2; die "cmake failed (full log: $build.configure.log)"; }
}

# build_targets TARGET...: none builds everything. On a terminal ninja shows its progress line.
build_targets() {
  if [ -t 1 ]; then
    ninja -C "$build" "$@" || die "the build failed"
  else
    ninja -C "$build" "$@" >"$build.log" 2>&1 || { grep -E -A5 'error:|FAILED' "$build.log" | head -n 60 >&2; die "the build failed (full log: $build.log)"; }
  fi
}

elapsed() { printf '(%d s)\n' $((SECONDS - $1)); }
