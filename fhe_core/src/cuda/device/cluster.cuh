// Blocks of a thread-block cluster: who they are, words sent into each other's shared memory, and how a receiver knows that they
// are there. sm_90 and later; on earlier devices clusters have one block and nothing is sent.
//
// A sender stores 16 bytes at a time, and each store counts itself off at an Arrivals of the receiver's (an mbarrier in shared
// memory), so that nobody waits for the whole cluster. An Arrivals completes one phase after the other: a phase ends when one
// thread of the receiver has said how many bytes come in it and as many have come. Kernels use two in turn, so that who is ahead by
// one exchange does not count into the phase of the other.
//
// Addresses are those of the sender's own shared memory; the receiver's have the same place in its block.
#pragma once

#include <cstdint>

#include "cuda/device/unrolled.cuh"

#if !defined(__CUDACC__) && defined(CLOAKWORK_EMULATE_WARPS)

#include "cuda/emulation/cluster.hpp"

#elif defined(__CUDACC__)

namespace fhe_core::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLOAKWORK_HAS_CLUSTERS
#endif

struct Arrivals {
    std::uint64_t word;
};

__device__ __forceinline__ std::int32_t* own_memory(std::int32_t* shared) { return shared; }

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Of a block in its cluster.
__device__ __forceinline__ int cluster_rank() {
    std::uint32_t rank = 0;
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return static_cast<int>(rank);
}

// A barrier of all threads of a cluster, in two halves; what was written before the first is seen after the second.
__device__ __forceinline__ void arrive_at_cluster() {
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// By one thread, before the cluster's first barrier.
__device__ __forceinline__ void begin_arrivals(Arrivals* arrivals) {
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrivals)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// By one thread, once in every phase.
__device__ __forceinline__ void expect_bytes(Arrivals* arrivals, int bytes) {
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrivals)), "r"(bytes) : "memory");
#endif
}
// Until the phase of this parity (0 first, then 1, 0, ..) has ended.
__device__ __forceinline__ void wait_for_bytes(Arrivals* arrivals, int parity) {
#ifdef CLOAKWORK_HAS_CLUSTERS
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(arrivals)),
        "r"(parity)
        : "memory");
#endif
}

// The shared memory of another block of the cluster.
class Peer {
   public:
    Peer() = default;
    // anything: of this block's shared memory.
    __device__ __forceinline__ Peer(const void* anything, int rank) {
#ifdef CLOAKWORK_HAS_CLUSTERS
        const std::uint32_t own = shared_address(anything);
        std::uint32_t there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
        distance_ = there - own;
#endif
    }
    __device__ __forceinline__ void send(Vec4* place, const Vec4& four, Arrivals* arrivals) const {
#ifdef CLOAKWORK_HAS_CLUSTERS
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                         shared_address(place) + distance_),
                     "r"(four.x[0]), "r"(four.x[1]), "r"(four.x[2]), "r"(four.x[3]), "r"(shared_address(arrivals) + distance_)
                     : "memory");
#endif
    }
    // Seen after the cluster's next barrier.
    __device__ __forceinline__ void store(Vec4* place, const Vec4& four) const {
#ifdef CLOAKWORK_HAS_CLUSTERS
        asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(place) + distance_), "r"(four.x[0]),
                     "r"(four.x[1]), "r"(four.x[2]), "r"(four.x[3])
                     : "memory");
#endif
    }

    // What the cluster's last barrier left there.
    __device__ __forceinline__ Vec4 load(const Vec4* place) const {
        Vec4 four{};
#ifdef CLOAKWORK_HAS_CLUSTERS
        asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four.x[0]), "=r"(four.x[1]), "=r"(four.x[2]), "=r"(four.x[3])
                     : "r"(shared_address(place) + distance_)
                     : "memory");
#endif
        return four;
    }

   private:
    std::uint32_t distance_ = 0;
};

}  // namespace fhe_core::cuda

#endif
