// The blind rotation of two and four lanes under a common mask: the layouts that the engine takes, and others, for each kind of
// step, beside one lane of the same kind (rotation_bench.hpp). Batches count ciphertexts, rates samples. run_device.sh builds and
// runs it.
//
//   bench_lanes [one | two | four [binary_pair | block_4 | block_6 | block_8 [batch ..]]]
#include "rotation_bench.hpp"

namespace fhe_core::cuda {
namespace {

template <CmuxKind kind, int lanes>
using Gate = KernelShape<512, 2, 1, 8, 2, 7, 2, kind, 1, Raising::none, lanes>;

// Groups, buffers, rows of the key ahead, ciphertexts of a group; teams, ciphertexts of one, rows ahead, keys at once.
template <int groups, int buffers, int depth, int per_warp = 1>
using Groups = OneLimbLayout<groups, per_warp, buffers, 2, depth, true>;
template <int teams, int per_team, int depth, int keys, bool prefetched = false>
using Teams = TeamLayout<teams, per_team, 2, depth, keys, false, true, prefetched>;

template <CmuxKind kind, class... Layouts>
void add_kind(std::vector<BenchCase>& cases, int one_lane_dimension, int lwe_dimension) {
    cases.push_back(case_of<Gate<kind, 1>>("one", one_lane_dimension));
    cases.push_back(case_of<Gate<kind, 2>, Layouts...>("two", lwe_dimension));
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    using enum fhe_core::CmuxKind;
    std::vector<BenchCase> cases;
    add_kind<binary_pair, Groups<3, 2, 2>, Groups<3, 1, 2>, Groups<4, 1, 1>, Groups<2, 2, 2>, Groups<2, 1, 1, 2>, Teams<1, 2, 2, 3>,
             Teams<2, 2, 1, 3>>(cases, 640, 642);
    add_kind<block_4, Groups<3, 1, 1>, Groups<3, 2, 1>, Groups<2, 2, 2>, Groups<4, 1, 1>, Teams<1, 2, 2, 4>, Teams<2, 2, 1, 2>,
             Teams<3, 1, 1, 4>>(cases, 676, 680);
    add_kind<block_6, Groups<3, 1, 1>, Groups<3, 2, 1>, Teams<1, 2, 2, 3>, Teams<2, 2, 1, 2>, Teams<2, 2, 2, 2>,
             Teams<2, 2, 1, 2, true>, Teams<3, 1, 1, 3>>(cases, 732, 732);
    add_kind<block_8, Groups<3, 1, 1>, Groups<3, 2, 1>, Teams<1, 2, 2, 4>, Teams<1, 2, 2, 2>, Teams<2, 2, 1, 2>, Teams<2, 2, 2, 2>,
             Teams<2, 2, 1, 2, true>, Teams<3, 1, 2, 4>, Teams<3, 1, 2, 2>, Teams<4, 1, 1, 4>>(cases, 784, 792);
    cases.push_back(case_of<Gate<binary_pair, 4>, Groups<2, 1, 2>, Groups<2, 2, 2>>("four", 644));
    cases.push_back(case_of<Gate<block_4, 4>, Groups<2, 1, 1>, Groups<2, 2, 1>>("four", 680));
    return bench_main(count, arguments, cases, {1, 132, 7920});
}
