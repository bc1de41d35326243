#include "cuda/linear/int8_gemm.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/errors.hpp"

namespace fhe_core::cuda {
namespace {

// The few functions of cuBLAS (11 to 13) that are called here, by their documented C interface.
struct Cublas {
    using Create = int (*)(void** handle);
    using Destroy = int (*)(void* handle);
    using SetStream = int (*)(void* handle, cudaStream_t stream);
    using GemmEx = int (*)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                           int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc,
                           int compute_type, int algorithm);
    static constexpr int kNoTranspose = 0, kTranspose = 1;  // CUBLAS_OP_N, CUBLAS_OP_T
    static constexpr int kInt8 = 3, kInt32 = 10;            // CUDA_R_8I, CUDA_R_32I
    static constexpr int kComputeInt32 = 72;                // CUBLAS_COMPUTE_32I
    static constexpr int kDefaultAlgorithm = -1;            // CUBLAS_GEMM_DEFAULT

    Create create = nullptr;
    Destroy destroy = nullptr;
    SetStream set_stream = nullptr;
    GemmEx gemm_ex = nullptr;
    std::string description;
    bool found() const { return gemm_ex != nullptr; }
};

std::mutex mutex;
std::vector<std::string>& folders() {
    static std::vector<std::string> list;
    return list;
}

std::vector<std::string> candidates() {
    std::vector<std::string> paths;
#ifdef CLOAKWORK_EMULATE_CUDA
    return paths;
#endif
    if (const char* forced = std::getenv("CLOAKWORK_CUBLAS"); forced != nullptr) return {forced};
    const char* const names[] = {"libcublas.so.13", "libcublas.so.12"};
    for (const char* name : names) paths.emplace_back(name);
    for (const std::string& folder : folders())
        for (const char* name : names) paths.push_back(folder + "/" + name);
    for (const char* folder :
         {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/local/cuda/targets/sbsa-linux/lib"})
        for (const char* name : names) paths.push_back(std::string(folder) + "/" + name);
    return paths;
}

template <class Function>
bool load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

Cublas find_cublas() {
    Cublas cublas;
    for (const std::string& path : candidates()) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) continue;
        if (load(library, "cublasCreate_v2", cublas.create) && load(library, "cublasDestroy_v2", cublas.destroy) &&
            load(library, "cublasSetStream_v2", cublas.set_stream) && load(library, "cublasGemmEx", cublas.gemm_ex)) {
            cublas.description = "cuBLAS from " + path;
            return cublas;
        }
        dlclose(library);
    }
    cublas.gemm_ex = nullptr;
    cublas.description =
        "cuBLAS not found: matrix products run on a slower kernel; install nvidia-cublas (pip) or name libcublas.so in "
        "CLOAKWORK_CUBLAS";
    return cublas;
}

// Looked up once, by the first session.
const Cublas& cublas() {
    static const Cublas found = [] {
        const std::lock_guard lock(mutex);
        return find_cublas();
    }();
    return found;
}

void check_cublas(int status, const char* what) {
    if (status != 0)
        throw DeviceError(
            std::string(what) + ": cuBLAS reports status " + std::to_string(status) +
            "; check that its version fits the driver, or set CLOAKWORK_CUBLAS to another libcublas.so (none: /dev/null)");
}

}  // namespace

void add_cublas_folder(const std::string& folder) {
    const std::lock_guard lock(mutex);
    folders().push_back(folder);
}

std::string gemm_description() { return cublas().description; }

Int8Gemm::Int8Gemm() {
    if (cublas().found()) check_cublas(cublas().create(&handle_), "creation of a cuBLAS handle");
}

Int8Gemm::~Int8Gemm() {
    if (handle_ != nullptr) cublas().destroy(handle_);
}

void Int8Gemm::operator()(const Int8Product& product, cudaStream_t stream) const {
    if (handle_ == nullptr) return launch_tiled_int8(product, stream);
    const std::int32_t one = 1, zero = 0;
    check_cublas(cublas().set_stream(handle_, stream), "cuBLAS");
    // Column-major there: out is m x n, both operands have k running fastest.
    check_cublas(cublas().gemm_ex(handle_, Cublas::kTranspose, Cublas::kNoTranspose, product.m, product.n, product.k, &one,
                                  product.a, Cublas::kInt8, product.k, product.b, Cublas::kInt8, product.k, &zero, product.out,
                                  Cublas::kInt32, product.m, Cublas::kComputeInt32, Cublas::kDefaultAlgorithm),
                 "matrix product");
}

}  // namespace fhe_core::cuda
