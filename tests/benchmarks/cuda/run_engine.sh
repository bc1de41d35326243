#!/bin/bash
# Installs the package, runs the gpu tests and the engine's benchmarks on a CUDA device: tests/benchmarks/cuda/run_engine.sh [output folder]
# Wheels in build/wheels are installed first: of what is missing there, and of cloakwork itself when one was built (else it is built here).
set -u
cd "$(dirname "$0")/../../.."
out=${1:-build/cuda}
site=/tmp/cloakwork-site
mkdir -p "$out" $site
export PYTHONPATH=$site PYTHONUNBUFFERED=1 CLOAKWORK_ALLOW_TOY=1 PIP_DISABLE_PIP_VERSION_CHECK=1
pip="python3 -m pip install -q --no-index --no-deps --upgrade --target $site"
[ -z "$(ls build/wheels/*.whl 2>/dev/null)" ] || $pip build/wheels/*.whl
started=$(date +%s)
cd /tmp  # `cloakwork` is what is installed, not this folder
if ! timeout 60 python3 -c "from cloakwork.fhe_core import _engine; print(_engine.cuda_devices())"; then
    cd - >/dev/null
    CMAKE_BUILD_PARALLEL_LEVEL=16 SKBUILD_CMAKE_DEFINE="CMAKE_CUDA_ARCHITECTURES=90-real" \
        timeout 280 $pip --no-build-isolation . 2>&1 | tail -30
    cd /tmp
    python3 -c "from cloakwork.fhe_core import _engine; print(_engine.cuda_devices())" || exit 1
fi
cd - >/dev/null
echo "installed after $(($(date +%s) - started)) s"
nvidia-smi --query-gpu=name,clocks.sm,driver_version --format=csv,noheader

timeout 120 python3 -m pytest -q -x -p no:cacheprovider -o filterwarnings=default -o minversion=7 tests/fhe_core/test_cuda.py >"$out/test_cuda.txt" 2>&1
tail -15 "$out/test_cuda.txt"
timeout 170 python3 tests/benchmarks/cuda/bench_engine.py --repeats 3 --json "$out/bench_engine.json" 2>&1 | tee "$out/bench_engine.txt"
timeout 100 python3 -m pytest -q -p no:cacheprovider -o filterwarnings=default -o minversion=7 tests/fhe_core/test_cuda.py -m long >"$out/test_shipped.txt" 2>&1
tail -8 "$out/test_shipped.txt"
timeout 40 python3 -m pytest -q -p no:cacheprovider -o filterwarnings=default -o minversion=7 tests/fhe_core/session/test_session.py -m gpu >"$out/test_session.txt" 2>&1
tail -8 "$out/test_session.txt"
for tool in memcheck racecheck; do
    echo "compute-sanitizer $tool"
    timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 python3 -m pytest -q -p no:cacheprovider -o filterwarnings=default -o minversion=7 tests/fhe_core/test_cuda.py \
        -k "(test_bootstrap and (33 or 257) and (toy-shaped or toy_gate-shaped or toy_two_limb-plain)) or (test_linear and shape1 and 128)" \
        >"$out/$tool.txt" 2>&1
    grep -E "passed|failed|ERROR SUMMARY|RACECHECK SUMMARY|Device not supported" "$out/$tool.txt" | tail -3
done
