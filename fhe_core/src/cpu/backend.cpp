#include "cpu/backend.hpp"

#include <algorithm>
#include <vector>

#include "cpu/parallel.hpp"
#include "cpu/stages.hpp"

namespace fhe_core::cpu {
namespace {

constexpr std::size_t kBootstrapChunk = 64;  // ciphertexts whose GLWE results are held before extraction

const void* at(const void* base, std::size_t bytes) { return static_cast<const char*>(base) + bytes; }
void* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

std::size_t lwe_bytes(const ParameterSet& p) { return std::size_t(p.large_words()) * p.word_bytes(); }
std::size_t rotated_bytes(const ParameterSet& p) { return p.rotated_words() * p.word_bytes(); }

const Progress kNoProgress;

}  // namespace

void CpuBackend::keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    const ParameterSet& p = parameters();
    Monitor monitor(kNoProgress, batch);
    parallel_shares(batch, threads_, monitor, [&](std::size_t first, std::size_t last) {
        cpu::keyswitch(*key_, at(lwe, first * lwe_bytes(p)), last - first, small_lwe + first * p.small_words());
    });
}

void CpuBackend::modulus_switch(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched) {
    cpu::modulus_switch(parameters(), small_lwe, batch, switched);
}

void CpuBackend::blind_rotate(const std::uint32_t* switched, std::size_t batch, const TableView& tables, void* glwe,
                              const Progress& progress) {
    const ParameterSet& p = parameters();
    Monitor monitor(progress, batch * p.key_step_count());
    parallel_shares(batch, threads_, monitor, [&](std::size_t first, std::size_t last) {
        cpu::blind_rotate(*key_, switched + first * p.small_words(), last - first, tables, first,
                          at(glwe, first * rotated_bytes(p)), monitor);
    });
}

void CpuBackend::sample_extract(const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) {
    cpu::sample_extract(parameters(), glwe, batch, extract, lwe);
}

void CpuBackend::bootstrap(const void* lwe, std::size_t batch, const TableView& tables, const ExtractView& extract, void* out,
                           const Progress& progress) {
    const ParameterSet& p = parameters();
    Monitor monitor(progress, batch * p.key_step_count());
    parallel_shares(batch, threads_, monitor, [&](std::size_t first, std::size_t last) {
        const std::size_t chunk = std::min(kBootstrapChunk, last - first);
        std::vector<std::uint32_t> small(chunk * p.small_words());
        std::vector<std::uint64_t> rotated((chunk * rotated_bytes(p) + 7) / 8);
        for (std::size_t i = first; i < last; i += chunk) {
            const std::size_t count = std::min(chunk, last - i);
            cpu::keyswitch(*key_, at(lwe, i * lwe_bytes(p)), count, small.data());
            cpu::modulus_switch(p, small.data(), count, small.data());
            cpu::blind_rotate(*key_, small.data(), count, tables, i, rotated.data(), monitor);
            cpu::extract_entries(p, rotated.data(), count, extract, at(out, i * extract.count * lwe_bytes(p)));
        }
    });
}

}  // namespace fhe_core::cpu
