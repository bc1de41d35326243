#include "cpu/large_ntt.hpp"

#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/parallel.hpp"

namespace fhe_core::cpu {

void large_ntt(const LargeNttTables& tables, std::uint32_t* words, std::size_t batch, bool inverse, int threads,
               const Progress& progress) {
    const Kernels& kernels = select_kernels();
    const std::size_t count = batch * tables.prime_count();
    Monitor monitor(progress, count);
    parallel_shares(count, threads, monitor, [&](std::size_t first, std::size_t last) {
        std::vector<std::int32_t> scratch(kLargeNttScratchWords);
        for (std::size_t i = first; i < last; ++i) {
            const std::size_t prime = i % tables.prime_count();
            kernels.large_ntt({tables.layout().n1, &tables.prime(prime), tables.roots(prime), words + i * tables.polynomial_size(),
                               scratch.data()},
                              inverse);
            monitor.advance(1);
        }
    });
}

}  // namespace fhe_core::cpu
