// The CPU back end: a session over one expanded key. The specification that every other back end is checked against.
#pragma once

#include <memory>

#include "core/backend.hpp"
#include "cpu/expanded_key.hpp"

namespace fhe_core::cpu {

// Thread-safe: no state but the shared key; every call owns its scratch.
class CpuBackend final : public Backend {
   public:
    CpuBackend(std::shared_ptr<const ExpandedKey> key, int threads) : key_(std::move(key)), threads_(threads) {}

    std::string_view name() const override { return "cpu"; }
    const ParameterSet& parameters() const override { return key_->parameters(); }
    int threads() const { return threads_; }
    const std::shared_ptr<const ExpandedKey>& key() const { return key_; }

    void keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) override;
    void modulus_switch(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched) override;
    void blind_rotate(const std::uint32_t* switched, std::size_t batch, const TableView& tables, void* glwe,
                      const Progress& progress) override;
    void sample_extract(const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) override;
    void bootstrap(const void* lwe, std::size_t batch, const TableView& tables, const ExtractView& extract, void* out,
                   const Progress& progress) override;
    void linear(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* lwe, std::size_t samples,
                void* out) override;
    void combine(const void* x, std::int64_t scale_x, const void* y, std::int64_t scale_y, std::uint64_t constant,
                 std::size_t batch, void* out) override;

    // linear after sample_extract of every value, word for word, without the extracted ciphertexts: out[s][r] = sum over c of
    // weights[r][c] * value[s * columns + c], value v being coefficient v mod N of GLWE ciphertext v / N.
    void linear_packed(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* glwe, std::size_t samples,
                       void* out);

   private:
    std::shared_ptr<const ExpandedKey> key_;
    int threads_;
};

}  // namespace fhe_core::cpu
