#!/bin/bash
# Checks and times the kernels on a CUDA device: tests/benchmarks/cuda/run_device.sh [output folder | build]
# Uses build/cuda/bench_* when they run here, else builds them with nvcc.
set -u
cd "$(dirname "$0")/../../.."
out=${1:-build/cuda}
mkdir -p build/cuda
flags="-std=c++20 -O3 --expt-relaxed-constexpr -Ifhe_core/src -Itests/benchmarks/cuda"
reference="fhe_core/src/reference/reference.cpp fhe_core/src/core/expand.cpp fhe_core/src/core/chacha20.cpp fhe_core/src/core/fft.cpp"
memory=$(printf 'fhe_core/src/cuda/%s ' linear/tiled_int8.cu linear/int8_gemm.cpp device/runtime.cpp device/device_memory.cpp device/host_memory.cpp device/host_copies.cpp)
gemm="fhe_core/src/cuda/linear/linear.cu fhe_core/src/cuda/linear/linear_wgmma.cu $memory"
stages="fhe_core/src/cuda/stages/keyswitch.cu fhe_core/src/cuda/stages/keyswitch_few.cu fhe_core/src/cuda/stages/modulus_switch.cu $memory"
benches="bench_linear bench_two_limbs bench_raised bench_rounded bench_blind_rotate bench_lanes bench_clusters bench_stages"

for name in $benches; do
    bench=build/cuda/$name
    chmod +x $bench 2>/dev/null
    if [ "$out" = build ] || ! timeout 60 $bench check >/dev/null 2>&1; then
        echo "building $bench"
        sources=$reference
        architecture=sm_90
        [ $name = bench_linear ] && sources=$gemm architecture=sm_90a
        [ $name = bench_stages ] && sources=$stages
        nvcc $flags -arch=$architecture tests/benchmarks/cuda/$name.cu $sources -o $bench || exit 1
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
        grep -E "blind_rotate|linear_product|linear_wgmma|block_kernel|Duration|SM Busy|Issue Slots Busy|Throughput|Hit Rate|No Eligible|Executed Ipc Active|Warp Cycles Per Issued|stall|pipeline" \
            "$out/ncu_$name.txt" | cut -c1-180
    done
fi
