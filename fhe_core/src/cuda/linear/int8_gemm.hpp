// Exact products of signed byte matrices with 32-bit sums: cuBLAS (tensor cores) when it is found, else a tiled kernel of ours.
//
// cuBLAS is looked up when it is first needed, so that nothing links against it: in CLOAKWORK_CUBLAS (a path), the loader's search
// path, the toolkit, and folders named by add_cublas_folder (the bindings add Python's nvidia packages).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

inline constexpr std::size_t kGemmAlignment = 16;  // of every extent, which is what the tensor cores' kernels want

struct Int8Product {
    const std::int8_t* a;  // [m][k]
    const std::int8_t* b;  // [n][k]
    std::int32_t* out;     // [n][m] = sum over k of a[m][k] * b[n][k]
    int m, n, k;           // multiples of kGemmAlignment
};

class Int8Gemm {
   public:
    Int8Gemm();  // for the current device
    ~Int8Gemm();
    Int8Gemm(const Int8Gemm&) = delete;
    Int8Gemm& operator=(const Int8Gemm&) = delete;
    void operator()(const Int8Product& product, cudaStream_t stream) const;

   private:
    void* handle_ = nullptr;
};

void add_cublas_folder(const std::string& folder);
// The library in use, or why the tiled kernel is used instead.
std::string gemm_description();

void launch_tiled_int8(const Int8Product& product, cudaStream_t stream);

}  // namespace fhe_core::cuda
