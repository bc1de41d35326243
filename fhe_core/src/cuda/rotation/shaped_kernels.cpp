#include "cuda/rotation/shaped_kernels.hpp"

#include <utility>

namespace fhe_core::cuda {

template <int... part>
static const ShapedKernel* find_in(const Shape& shape, std::integer_sequence<int, part...>) {
    for (const std::span<const ShapedKernel> kernels :
         {one_limb_kernels<part>()..., extended_kernels<part>()..., two_limb_kernels<part>()..., rounded_kernels(), ntru_kernels()})
        for (const ShapedKernel& kernel : kernels)
            if (kernel.shape == shape) return &kernel;
    return nullptr;
}

const ShapedKernel* find_shaped_kernel(const Shape& shape) {
    return find_in(shape, std::make_integer_sequence<int, kShapedKernelParts>{});
}

template <int... part>
static std::vector<ClusterKernel> find_clusters_in(const Shape& shape, std::integer_sequence<int, part...>) {
    for (const std::span<const ClusterKernels> list : {cluster_kernels<part>()...})
        for (const ClusterKernels& entry : list)
            if (entry.shape == shape) return entry.kernels;
    return {};
}

std::vector<ClusterKernel> find_cluster_kernels(const Shape& shape) {
    return find_clusters_in(shape, std::make_integer_sequence<int, kShapedKernelParts>{});
}

cudaError_t choose_cluster_kernels(const Shape& shape, std::vector<ClusterChoice>& choices) {
    choices.clear();
    for (const ClusterKernel& kernel : find_cluster_kernels(shape)) {
        int clusters = 0;
        const cudaError_t status = kernel.clusters_at_once(&clusters);
        if (status != cudaSuccess) return status;
        const int ciphertexts = kernel.waves * clusters;
        if (choices.empty() ? ciphertexts > 0 : ciphertexts > choices.back().ciphertexts)
            choices.push_back({kernel, clusters, ciphertexts});
    }
    return cudaSuccess;
}

cudaError_t launch_rotation(const ShapedKernel& shaped, std::span<const ClusterChoice> clusters, const BlindRotateView& view,
                            int at_once, cudaStream_t stream) {
    const int few = clusters.empty() ? 0 : clusters.back().ciphertexts, wave = shaped.ciphertexts_per_block * at_once;
    const auto launch_few = [&](const BlindRotateView& rest) {
        const auto* choice = clusters.data();
        while (choice->ciphertexts < rest.batch) ++choice;
        return choice->kernel.launch(rest, choice->clusters, stream);
    };
    if (view.batch <= few) return launch_few(view);
    const int left = view.batch > wave ? view.batch % wave : 0;
    if (left == 0 || left > few) return shaped.launch(view, at_once, stream);
    BlindRotateView waves = view;
    waves.batch -= left;
    const cudaError_t status = shaped.launch(waves, at_once, stream);
    return status == cudaSuccess ? launch_few(rest_of(shaped.shape, view, waves.batch)) : status;
}

}  // namespace fhe_core::cuda
