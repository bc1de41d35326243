#include <algorithm>
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/stages.hpp"
#include "cpu/tables.hpp"

namespace fhe_core::cpu {
namespace {

constexpr std::size_t kAccumulatorBytes = std::size_t{256}
                                          << 10;  // of a block, so that it shares the second-level cache with a key slice
constexpr std::size_t kMaxBlock = 32;
constexpr int kStepsPerSlice = 32;  // between two looks at the monitor

std::size_t block_size(const ParameterSet& p) {
    const std::size_t bytes = p.rotated_words() * p.word_bytes();
    return std::clamp<std::size_t>(kAccumulatorBytes / bytes, 1, kMaxBlock);
}

// Bodies of the accumulators: X^-rotation of their lane * table, in offset representation x + (Q-1)/2; masks are 0, or the other
// way round in an NTRU accumulator. Entry nu*j + i of the table is coefficient j of accumulator i.
template <class Word>
void initialise(const ParameterSet& p, const Word* table, const std::uint32_t* rotations, Word* accumulators) {
    const std::uint32_t n = p.polynomial_size(), parts = p.extension_factor(), size = p.table_size();
    const Word q = static_cast<Word>(p.modulus()), half = (q - 1) / 2;
    for (std::uint32_t part = 0; part < parts; ++part) {
        Word* const end = accumulators + std::size_t(p.component_count()) * n;
        Word* body = p.is_ntru() ? accumulators : accumulators + std::size_t(p.glwe_dimension()) * n;
        std::fill(accumulators, end, half);
        for (int lane = 0; lane < p.lane_count(); ++lane, body += n) {
            for (std::uint32_t j = 0; j < n; ++j) {
                const std::uint32_t at = (parts * j + part + rotations[lane]) & (2 * size - 1);
                const Word value = table[at & (size - 1)];
                const Word word = at < size || value == 0 ? value : Word(q - value);
                body[j] = word < q - half ? Word(word + half) : Word(word - (q - half));
            }
        }
        accumulators = end;
    }
}

template <class Word>
void rotate_words(const ExpandedKey& key, const std::uint32_t* switched, std::size_t batch, const TableView& tables,
                  std::size_t first, Word* glwe, Monitor& monitor) {
    const ParameterSet& p = key.parameters();
    const std::size_t words = p.rotated_words(), small_words = p.small_words();
    const Word q = static_cast<Word>(p.modulus()), half = (q - 1) / 2;
    std::vector<std::int32_t> scratch(key.kernels().rotate_scratch_words(p));
    const std::size_t block = block_size(p);
    RotateJob job{};
    job.parameters = &p;
    const auto rotate = p.has_rounded_products() ? key.kernels().rotate_rounded : key.kernels().rotate;
    for (int limb = 0; limb < p.transform_limbs().count; ++limb) job.tables[limb] = &key.tables(limb).view();
    job.key = key.bootstrap_key();
    job.key_step_words = key.step_words();
    job.scratch = scratch.data();
    for (std::size_t start = 0; start < batch; start += block) {
        job.batch = std::min(block, batch - start);
        job.switched = switched + start * small_words;
        Word* accumulators = glwe + start * words;
        job.accumulators = accumulators;
        for (std::size_t i = 0; i < job.batch; ++i) {
            const std::size_t table = tables.index == nullptr ? 0 : tables.index[first + start + i];
            initialise(p, static_cast<const Word*>(tables.tables) + table * p.table_size(),
                       job.switched + i * small_words + p.lwe_dimension, accumulators + i * words);
        }
        for (int step = 0; step < p.key_step_count(); step += kStepsPerSlice) {
            job.first_step = step;
            job.last_step = std::min(step + kStepsPerSlice, p.key_step_count());
            rotate(job);
            monitor.advance(job.batch * (job.last_step - job.first_step));
        }
        for (std::size_t i = 0; i < job.batch * words; ++i) {
            const Word z = accumulators[i];
            accumulators[i] = z >= half ? Word(z - half) : Word(z + (q - half));
        }
    }
}

}  // namespace

void blind_rotate(const ExpandedKey& key, const std::uint32_t* switched, std::size_t batch, const TableView& tables,
                  std::size_t first, void* glwe, Monitor& monitor) {
    if (key.parameters().has_rounded_products()) require_rounding_to_nearest(key.parameters());
    if (key.parameters().limb_count() == 1) {
        rotate_words(key, switched, batch, tables, first, static_cast<std::uint32_t*>(glwe), monitor);
    } else {
        rotate_words(key, switched, batch, tables, first, static_cast<std::uint64_t*>(glwe), monitor);
    }
}

}  // namespace fhe_core::cpu
