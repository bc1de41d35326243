// The two-limb blind rotation in the layouts that the engine takes (rotation_bench.hpp). run_device.sh builds and runs it.
#include "rotation_bench.hpp"

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    std::vector<BenchCase> cases;
    add_cases<1024, 2, 2, 24, 1, 24, 1>(cases, "lut3", 786);
    add_cases<2048, 1, 2, 24, 1, 24, 1>(cases, "lut4", 834);
    add_cases<2048, 1, 2, 16, 2, 16, 2>(cases, "large16", 834);
    add_cases<4096, 1, 2, 24, 1, 24, 1>(cases, "lut5", 914);
    cases.push_back(case_of<KernelShape<2048, 1, 2, 5, 9, 5, 9, fhe_core::CmuxKind::binary_pair>>("fine4", 836));
    cases.push_back(case_of<KernelShape<4096, 1, 2, 6, 8, 6, 8, fhe_core::CmuxKind::binary_pair>>("fine5", 914));
    return bench_main(count, arguments, cases, {1, 132, 264, 4224});
}
