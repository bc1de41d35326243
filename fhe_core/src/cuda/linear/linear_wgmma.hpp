// Linear layers by wgmma, on devices of compute capability 9.0: the kernels of linear_wgmma.cuh, compiled for sm_90a alone.
#pragma once

#include "cuda/linear/linear.hpp"

namespace fhe_core::cuda {

inline constexpr std::size_t kWgmmaColumns = std::size_t{1} << 16;  // sums of signed times unsigned bytes stay below 2^31

// Whether wgmma takes a layer: its kernel, and with LinearKernel::automatic what was measured to be faster.
bool takes_wgmma(const ParameterSet& params, const LinearPiece& piece);
void launch_linear_wgmma(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream);

}  // namespace fhe_core::cuda
