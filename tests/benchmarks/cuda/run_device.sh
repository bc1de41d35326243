#!/bin/bash
# Checks and times the blind rotation kernels on a CUDA device: tests/benchmarks/cuda/run_device.sh [output folder]
# Uses build/cuda/bench_blind_rotate when it runs here, else builds it with nvcc.
set -u
cd "$(dirname "$0")/../../.."
out=${1:-build/cuda}
mkdir -p "$out" build/cuda
bench=build/cuda/bench_blind_rotate
sources="tests/benchmarks/cuda/bench_blind_rotate.cu fhe_core/src/common/reference.cpp fhe_core/src/common/expand.cpp fhe_core/src/common/chacha20.cpp"
flags="-std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90,code=sm_90 -Ifhe_core/include -Ifhe_core/src -Itests/benchmarks/cuda"

chmod +x $bench 2>/dev/null
if [ "${1:-}" = build ] || ! timeout 60 $bench check >/dev/null 2>&1; then
    echo "building $bench"
    nvcc $flags $sources -o $bench || exit 1
fi
[ "${1:-}" = build ] && exit 0

nvidia-smi --query-gpu=name,clocks.sm,driver_version --format=csv,noheader
timeout 400 $bench 2>&1 | tee "$out/bench_blind_rotate.txt"
if command -v ncu >/dev/null; then
    timeout 150 ncu --clock-control none --section SpeedOfLight --section ComputeWorkloadAnalysis --section MemoryWorkloadAnalysis \
        --section SchedulerStats --section WarpStateStats --section InstructionStats $bench profile >"$out/ncu.txt" 2>&1
    grep -E "blind_rotate|Duration|SM Busy|Issue Slots Busy|Throughput|Hit Rate|No Eligible|Executed Ipc Active|Warp Cycles Per Issued|stall|pipeline" \
        "$out/ncu.txt" | cut -c1-180
fi
