// What an expanded key holds on its device.
#pragma once

#include <string>
#include <vector>

#include "cuda/backend.hpp"
#include "cuda/device/runtime.hpp"
#include "cuda/linear/int8_gemm.hpp"
#include "cuda/rotation/blind_rotate.hpp"

namespace fhe_core::cuda {

struct ExpandedKey::State {
    ParameterSet params;
    int device;
    int multiprocessors;
    std::size_t shared_bytes;             // of a block, at most
    const ShapedKernel* shaped;           // nullptr: the plain kernel
    int at_once;                          // blocks of the shaped kernel, or clusters
    std::vector<ClusterChoice> clusters;  // beside the shaped kernel
    KeyLayout layout;
    DeviceBuffer bootstrap_key, keyswitch_planes;
    DeviceBuffer plain_twiddles[2], plain_powers[2];
    DeviceBuffer shaped_twiddles, shaped_powers;
    int slices, columns;  // of the keyswitch planes
    std::size_t keyswitch_rows;

    PlainTables tables(int limb) const { return {plain_twiddles[limb].as<Twiddle>(), plain_powers[limb].as<std::int32_t>()}; }
    bool plain_fits_shared() const { return plain_rotate_bytes(params) <= shared_bytes; }
    // Ciphertexts that run at once.
    int wave() const { return shaped != nullptr ? at_once * shaped->ciphertexts_per_block : 2 * multiprocessors; }
};

}  // namespace fhe_core::cuda
