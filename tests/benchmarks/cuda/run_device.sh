#!/bin/bash
# Checks and times the kernels on a CUDA device: tests/benchmarks/cuda/run_device.sh [output folder | build]
# Uses build/cuda/bench_* when they run here, else builds them with nvcc.
set -u
cd "$(dirname "$0")/../../.."
out=${1:-build/cuda}
mkdir -p build/cuda
flags="-std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90,code=sm_90 -Ifhe_core/include -Ifhe_core/src -Itests/benchmarks/cuda"
reference="fhe_core/src/common/reference.cpp fhe_core/src/common/expand.cpp fhe_core/src/common/chacha20.cpp"
gemm="fhe_core/src/cuda/linear.cu fhe_core/src/cuda/tiled_int8.cu fhe_core/src/cuda/int8_gemm.cpp fhe_core/src/cuda/runtime.cpp fhe_core/src/cuda/device_memory.cpp"
benches="bench_linear bench_two_limbs bench_blind_rotate"

for name in $benches; do
    bench=build/cuda/$name
    chmod +x $bench 2>/dev/null
    if [ "$out" = build ] || ! timeout 60 $bench check >/dev/null 2>&1; then
        echo "building $bench"
        sources=$reference
        [ $name = bench_linear ] && sources=$gemm
        nvcc $flags tests/benchmarks/cuda/$name.cu $sources -o $bench || exit 1
    fi
done
[ "$out" = build ] && exit 0

mkdir -p "$out"
nvidia-smi --query-gpu=name,clocks.sm,driver_version --format=csv,noheader
for name in $benches; do timeout 400 build/cuda/$name 2>&1 | tee "$out/$name.txt"; done
if command -v ncu >/dev/null; then
    for name in $benches; do
        timeout 150 ncu --clock-control none --section SpeedOfLight --section ComputeWorkloadAnalysis --section MemoryWorkloadAnalysis \
            --section SchedulerStats --section WarpStateStats --section InstructionStats build/cuda/$name profile >"$out/ncu_$name.txt" 2>&1
        grep -E "blind_rotate|linear_product|block_kernel|Duration|SM Busy|Issue Slots Busy|Throughput|Hit Rate|No Eligible|Executed Ipc Active|Warp Cycles Per Issued|stall|pipeline" \
            "$out/ncu_$name.txt" | cut -c1-180
    done
fi
