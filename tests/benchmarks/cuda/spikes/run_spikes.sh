#!/bin/bash
# Spikes beside the package: tests/benchmarks/cuda/spikes/run_spikes.sh build [folder] | run [folder] | mask
#   build   programs for sm_90 into the folder (build/device), to be carried to a machine with a card
#   run     all of them there: words against a CPU replay, then times
#   mask    the noise of the common mask with real keys, on the CPU alone
set -u
cd "$(dirname "$0")/../../../.."
folder=${2:-build/device}
includes="-Ifhe_core/include -Ifhe_core/src -Itests/benchmarks/cuda -Itests/benchmarks/cuda/spikes"
reference="fhe_core/src/common/reference.cpp fhe_core/src/common/expand.cpp fhe_core/src/common/chacha20.cpp fhe_core/src/common/fft.cpp"
benches="bench_common_mask"
case ${1:-run} in
build)
    mkdir -p "$folder"
    for name in $benches; do
        nvcc -std=c++20 -O3 --expt-relaxed-constexpr -cudart static -gencode=arch=compute_90,code=sm_90 -Xcompiler -ffp-contract=off $includes \
            tests/benchmarks/cuda/spikes/$name.cu $reference -o "$folder/$name" || exit 1
    done
    ;;
run)
    nvidia-smi --query-gpu=name,clocks.sm,driver_version --format=csv,noheader
    for name in $benches; do "$folder/$name" 2>&1 | tee "$folder/$name.txt"; done
    ;;
mask)
    name=measure_common_mask
    mkdir -p "$folder"
    c++ -std=c++20 -O3 -march=native -ffp-contract=off -U_FORTIFY_SOURCE -Wno-unknown-pragmas -Wno-ignored-attributes $includes \
        -Ifhe_core/src/cuda/emulation tests/benchmarks/cuda/spikes/$name.cpp $reference -o "$folder/$name" && "$folder/$name"
    ;;
esac
