// The CUDA back end: evaluation keys expanded on one device, and sessions over them. No CUDA header is needed to use it.
//
// Results are word for word those of the CPU back end. Methods take host memory (page-locked memory is copied without a detour) or
// memory of their own device; batches are cut into pieces that fit the device, and copies of one piece overlap with work on the
// next. A call whose result stays on the device returns when its work is enqueued; one whose result goes to the host, when it is
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "core/evaluation_keys.hpp"
#include "core/parameters.hpp"
#include "cuda/device/device_array.hpp"

namespace fhe_core::cuda {

struct DeviceInfo {
    int number;
    std::string name;
    std::string compute_capability;
    std::size_t total_bytes, free_bytes;
    int multiprocessors;
    bool usable;
    std::string details;  // how, or why not
};

// 0 where there is no driver or no device.
int device_count() noexcept;
// One entry per visible device; DeviceError, with what to do, where CUDA cannot start.
std::vector<DeviceInfo> devices();

// Where to look for libcublas.so, before the first session.
void add_cublas_folder(const std::string& folder);

// `shaped`: the kernel made for the set's shape where there is one; `plain`: the one for any shape (slow; tests compare them).
enum class KernelChoice : std::uint8_t { shaped, plain };

// Immutable; shared by any number of sessions and threads.
class ExpandedKey {
   public:
    ExpandedKey(const SeededEvaluationKeysView& keys, int device, KernelChoice choice, const Progress& progress);
    ~ExpandedKey();

    const ParameterSet& parameters() const;
    int device() const;
    std::size_t memory_bytes() const;
    std::string kernel() const;  // of the blind rotation

    struct State;
    const State& state() const { return *state_; }

   private:
    std::unique_ptr<State> state_;
};

// Time of the device in the stages of the last bootstrap, copies not included.
struct StageSeconds {
    double keyswitch;     // with the modulus switch
    double blind_rotate;  // with the extraction
};

// A matrix of weights on a device, in the form of the linear layer.
class CachedWeights;

// A linear layer that gathers: row r of position p of sample s, out[s][out_rows[p] + r] = bias[r] + sum over c of
// weights[r][c] * lwe[s][gather[p][c]], modulo Q.
struct GatheredLinear {
    std::shared_ptr<const CachedWeights> weights;
    const void* lwe;  // [samples][sample_rows][kN + r]
    std::size_t samples, sample_rows;
    const std::int32_t* gather;  // host, [positions][columns] below sample_rows, -1 for zero; nullptr: rows 0 .. columns - 1
    std::size_t positions;
    const std::uint64_t* bias;  // host, [rows] words below Q, on all bodies; nullptr: none
    void* out;                  // [samples][out_sample_rows][kN + r]
    std::size_t out_sample_rows;
    const std::int32_t* out_rows;  // host, [positions]; nullptr: p * rows
};

// Thread-safe: calls on one session wait for each other. Once the device has failed every later call says so.
class CudaBackend final : public Backend {
   public:
    // memory_limit: bytes on the device that batches of this session may use; 0: what is free.
    // stream: the caller's, on which all work is enqueued then; the caller keeps it alive.
    explicit CudaBackend(std::shared_ptr<const ExpandedKey> key, std::size_t memory_limit = 0,
                         std::optional<StreamHandle> stream = std::nullopt);
    ~CudaBackend() override;

    std::string_view name() const override { return "cuda"; }
    const ParameterSet& parameters() const override { return key_->parameters(); }
    const std::shared_ptr<const ExpandedKey>& key() const { return key_; }
    std::string matrix_products() const;  // the library in use
    StageSeconds last_bootstrap() const;  // waits for it
    StreamHandle stream() const;
    void synchronize();                // until all work of the session is done
    std::size_t cached_bytes() const;  // tables, weights and indices that stay on the device between calls

    // An array for a result on the session's stream; DeviceError when the device has failed.
    DeviceArray allocate(DeviceArray::Shape shape, int word_bytes, const char* what);
    // Around calls whose operands lie on the device: the session waits for their writers, later writers and releases for the
    // session.
    void before(const std::vector<DeviceArray>& inputs);
    void after(const std::vector<DeviceArray>& inputs, const DeviceArray* out);

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

    std::shared_ptr<const CachedWeights> upload_weights(const std::int32_t* weights, std::size_t rows, std::size_t columns);
    void linear(const GatheredLinear& layer);
    // out[s][e] = x[s][rows[e]], rows of zeros for -1.
    void take(const void* x, std::size_t samples, std::size_t sample_rows, const std::int32_t* rows, std::size_t count, void* out);

    struct State;

   private:
    std::shared_ptr<const ExpandedKey> key_;
    std::unique_ptr<State> state_;
};

std::size_t weight_rows(const CachedWeights& weights);
std::size_t weight_columns(const CachedWeights& weights);
int weight_device(const CachedWeights& weights);

}  // namespace fhe_core::cuda
