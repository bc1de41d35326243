// The one-limb blind rotation in the layouts that the engine takes (rotation_bench.hpp). run_device.sh builds and runs it.
#include "rotation_bench.hpp"

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    std::vector<BenchCase> cases;
    add_cases<512, 2, 1, 8, 2, 7, 2>(cases, "gate", 640);
    add_cases<512, 2, 1, 6, 3, 7, 2>(cases, "lut1", 658);
    add_cases<512, 2, 1, 5, 4, 5, 3>(cases, "lut2", 742);
    add_cases<512, 2, 1, 6, 3, 5, 3>(cases, "nn2", 670);
    add_cases<1024, 1, 1, 5, 4, 5, 3>(cases, "nn1", 746);
    return bench_main(count, arguments, cases, {1, 132, 264, 528, 15840});
}
