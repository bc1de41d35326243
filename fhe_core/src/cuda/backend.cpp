// Sessions: batches cut into pieces that fit the device, copies overlapped with work, the stages in order on one stream.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "cuda/expand_key.hpp"
#include "cuda/expanded_key.hpp"
#include "cuda/linear.hpp"
#include "cuda/stages.hpp"
#include "fhe_core/errors.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{48} << 20;  // of one input or output buffer
constexpr std::size_t kPieceWaves = 8;                      // of a blind rotation
constexpr std::size_t kMostItems = std::size_t{1} << 20;

const Progress kNoProgress;

const char* at(const void* base, std::size_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

std::size_t padded(std::size_t count) { return (count + kGemmAlignment - 1) / kGemmAlignment * kGemmAlignment; }

std::string mebibytes(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

struct Input {
    const void* data;
    std::size_t item_bytes;
};

// One call: host arrays of `batch` items in, one out.
struct Job {
    const char* name;
    std::size_t batch;
    Input inputs[2];  // the second may be empty
    void* out;
    std::size_t out_bytes;      // of an item
    std::size_t scratch_bytes;  // of an item, on the device
    std::size_t preferred;      // items of a piece
};

}  // namespace

struct CudaBackend::State {
    State(const ExpandedKey::State& expanded, std::size_t limit) : key(expanded), memory_limit(limit) {}

    const ExpandedKey::State& key;
    const std::size_t memory_limit;
    std::mutex mutex;
    std::string failure;  // of the device, for good
    Stream compute, upload, download;
    Int8Gemm gemm;

    // Two pieces in flight.
    struct Slot {
        PinnedBuffer pinned_in[2], pinned_out;
        DeviceBuffer in[2], out;
        Event uploaded, computed, downloaded;
        Event started{true}, switched{true}, rotated{true};
        bool timed = false;
        std::size_t first = 0, count = 0;  // items whose results are still to be fetched
    } slots[2];
    std::size_t current = 0;  // slot of the piece being enqueued
    DeviceBuffer digits, sums, bodies, small, glwe, tables, index, coefficients, plain_scratch;
    DeviceBuffer weights, linear_bytes;
    std::vector<std::int32_t> weights_on_device;  // of the last call; a layer's weights stay
    SlicedWeights sliced{};

    StageSeconds seconds{};

    const ParameterSet& params() const { return key.params; }
    std::size_t lwe_bytes() const { return (std::size_t(params().large_dimension()) + 1) * params().word_bytes(); }
    std::size_t small_bytes() const { return (std::size_t(params().lwe_dimension) + 1) * 4; }
    std::size_t glwe_bytes() const {
        return std::size_t(params().glwe_dimension() + 1) * params().polynomial_size() * params().word_bytes();
    }
    std::size_t keyswitch_scratch() const {
        return key.keyswitch_rows + std::size_t(key.slices) * key.columns * 4 + 4 + small_bytes();
    }

    // --- Calls ---

    template <class F>
    void guarded(F&& f) {
        const std::lock_guard lock(mutex);
        if (!failure.empty())
            throw DeviceError("this session's device failed earlier (" + failure +
                              "); make a new session, in a new process if that fails too");
        const DeviceGuard guard(key.device);
        try {
            f();
        } catch (const OutOfDeviceMemory&) {
            abandon();
            throw;
        } catch (const DeviceError& error) {
            failure = error.what();
            abandon();
            throw;
        } catch (...) {
            abandon();
            throw;
        }
    }

    // Nothing is in flight afterwards.
    void abandon() noexcept {
        for (const Stream* stream : {&upload, &compute, &download}) cudaStreamSynchronize(*stream);
        for (Slot& slot : slots) slot.count = 0, slot.timed = false;
    }

    // --- Memory plan ---

    std::size_t held_bytes() const {
        std::size_t bytes = 0;
        for (const DeviceBuffer* buffer :
             {&digits, &sums, &bodies, &small, &glwe, &tables, &index, &coefficients, &plain_scratch, &weights, &linear_bytes})
            bytes += buffer->bytes();
        for (const Slot& slot : slots) bytes += slot.in[0].bytes() + slot.in[1].bytes() + slot.out.bytes();
        return bytes;
    }

    // Items of a piece such that two pieces and their scratch fit.
    std::size_t plan(const Job& job) const {
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "memory of the device");
        const std::size_t in_bytes = std::max(job.inputs[0].item_bytes, job.inputs[1].item_bytes);
        const std::size_t item = 2 * (job.inputs[0].item_bytes + job.inputs[1].item_bytes + job.out_bytes) + job.scratch_bytes;
        const std::size_t usable = (free + held_bytes()) / 8 * 7;
        const std::size_t available = memory_limit == 0 ? usable : std::min(usable, memory_limit), fitting = available / item;
        if (fitting == 0)
            throw OutOfDeviceMemory(std::string(job.name) + ": one item needs " + mebibytes(item) + " on the device, " +
                                    mebibytes(available) +
                                    " are free; free other sessions and keys or use a device with more memory");
        const std::size_t by_bytes = std::max<std::size_t>(1, kPieceBytes / std::max(in_bytes, job.out_bytes));
        return std::min({fitting, by_bytes, std::max<std::size_t>(job.preferred, 1), kMostItems, job.batch});
    }

    // enqueue(first, count, in, out) puts the work of a piece on `compute`.
    template <class Enqueue>
    void run(const Job& job, const Progress& progress, Enqueue&& enqueue) {
        const std::size_t piece = plan(job);
        for (std::size_t first = 0, number = 0; first < job.batch; first += piece, ++number) {
            current = number % 2;
            Slot& slot = slots[current];
            fetch(slot, job, progress);
            const std::size_t count = std::min(piece, job.batch - first);
            for (int i = 0; i < 2; ++i) {
                const std::size_t bytes = count * job.inputs[i].item_bytes;
                if (bytes == 0) continue;
                slot.pinned_in[i].reserve(bytes);
                slot.in[i].reserve(bytes, job.name);
                std::memcpy(slot.pinned_in[i].data(), at(job.inputs[i].data, first * job.inputs[i].item_bytes), bytes);
                check(cudaMemcpyAsync(slot.in[i].data(), slot.pinned_in[i].data(), bytes, cudaMemcpyHostToDevice, upload),
                      job.name);
            }
            slot.uploaded.record(upload);
            slot.uploaded.wait_in(compute);
            slot.out.reserve(count * job.out_bytes, job.name);
            slot.pinned_out.reserve(count * job.out_bytes);
            const void* in[2] = {slot.in[0].data(), slot.in[1].data()};
            enqueue(first, count, in, slot.out.data());
            slot.computed.record(compute);
            slot.computed.wait_in(download);
            check(cudaMemcpyAsync(slot.pinned_out.data(), slot.out.data(), count * job.out_bytes, cudaMemcpyDeviceToHost, download),
                  job.name);
            slot.downloaded.record(download);
            slot.first = first;
            slot.count = count;
        }
        const std::size_t pieces = (job.batch + piece - 1) / piece;
        fetch(slots[pieces % 2], job, progress);
        fetch(slots[(pieces + 1) % 2], job, progress);
    }

    void fetch(Slot& slot, const Job& job, const Progress& progress) {
        if (slot.count == 0) return;
        slot.downloaded.synchronize();
        std::memcpy(at(job.out, slot.first * job.out_bytes), slot.pinned_out.data(), slot.count * job.out_bytes);
        const std::size_t done = slot.first + slot.count;
        slot.count = 0;
        if (slot.timed) {
            seconds.keyswitch += slot.switched.seconds_since(slot.started);
            seconds.blind_rotate += slot.rotated.seconds_since(slot.switched);
            slot.timed = false;
        }
        if (progress && !progress(done, job.batch)) throw CancelledError("the call was cancelled; no result was written");
    }

    // --- Stages on device memory ---

    void put(DeviceBuffer& buffer, const void* data, std::size_t bytes, const char* what) {
        buffer.reserve(bytes, what);
        check(cudaMemcpyAsync(buffer.data(), data, bytes, cudaMemcpyHostToDevice, compute), what);
    }

    void put_tables(const TableView& view, std::size_t batch) {
        put(tables, view.tables, view.table_count * params().polynomial_size() * params().word_bytes(), "look-up tables");
        if (view.index != nullptr) put(index, view.index, batch * 4, "look-up tables");
    }

    void keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
        const std::size_t batch_rows = padded(batch), columns = std::size_t(key.slices) * key.columns;
        digits.reserve(batch_rows * key.keyswitch_rows, "keyswitch");
        sums.reserve(batch_rows * columns * 4, "keyswitch");
        bodies.reserve(batch * 4, "keyswitch");
        launch_keyswitch_digits(params(), lwe, batch, digits.as<std::int8_t>(), bodies.as<std::uint32_t>(), compute);
        gemm({key.keyswitch_planes.as<std::int8_t>(), digits.as<std::int8_t>(), sums.as<std::int32_t>(), static_cast<int>(columns),
              static_cast<int>(batch_rows), static_cast<int>(key.keyswitch_rows)},
             compute);
        launch_keyswitch_sums(params(), sums.as<std::int32_t>(), key.slices, key.columns, bodies.as<std::uint32_t>(), batch,
                              small_lwe, compute);
    }

    struct Piece {
        std::size_t first, count;
    };

    BlindRotateView rotate_view(const std::uint32_t* switched, const TableView& host, Piece piece, void* out) {
        BlindRotateView view{};
        view.switched = switched;
        view.key = key.bootstrap_key.data();
        view.tables = tables.data();
        view.table_index = host.index == nullptr ? nullptr : index.as<std::uint32_t>() + piece.first;
        view.out = out;
        view.batch = static_cast<int>(piece.count);
        view.steps = params().step_count();
        return view;
    }

    void rotate_plain(const BlindRotateView& view) {
        const int blocks = std::min(view.batch, key.wave());
        PlainRotateView plain{view, {key.tables(0), key.tables(1)}, nullptr};
        if (!key.plain_fits_shared()) {
            plain_scratch.reserve(blocks * plain_rotate_bytes(params()), "blind rotation");
            plain.scratch = plain_scratch.as<std::int32_t>();
        }
        launch_plain_rotate(params(), plain, blocks, compute);
    }

    // Whole GLWE ciphertexts, or (extract_count > 0) LWE ciphertexts of the coefficients on the device.
    void rotate(const std::uint32_t* switched, const TableView& host, Piece piece, std::size_t extract_count, void* out) {
        BlindRotateView view = rotate_view(switched, host, piece, out);
        if (key.shaped != nullptr) {
            view.twiddles = key.shaped_twiddles.data();
            view.powers = key.shaped_powers.as<std::int32_t>();
            view.coefficients = extract_count == 0 ? nullptr : coefficients.as<std::uint32_t>();
            view.coefficient_count = static_cast<int>(extract_count);
            check(key.shaped->launch(view, key.multiprocessors, compute), "blind rotation");
        } else if (extract_count == 0) {
            rotate_plain(view);
        } else {
            glwe.reserve(piece.count * glwe_bytes(), "blind rotation");
            view.out = glwe.data();
            rotate_plain(view);
            launch_sample_extract(params(), glwe.data(), piece.count, coefficients.as<std::uint32_t>(), extract_count, out,
                                  compute);
        }
    }

    std::size_t rotate_scratch() const {
        if (key.shaped != nullptr) return 0;
        return glwe_bytes() + (key.plain_fits_shared() ? 0 : plain_rotate_bytes(params()));
    }
    std::size_t rotate_piece() const { return kPieceWaves * key.wave(); }

    void put_weights(const std::int32_t* values, std::size_t rows, std::size_t columns) {
        const std::size_t count = rows * columns;
        const bool known = sliced.rows == static_cast<int>(rows) && sliced.columns == static_cast<int>(columns) &&
                           weights_on_device.size() == count &&
                           (count == 0 || std::memcmp(weights_on_device.data(), values, count * sizeof *values) == 0);
        if (known) return;
        weights_on_device.clear();
        sliced = slice_weights(values, rows, columns);
        put(weights, sliced.slices.data(), sliced.slices.size(), "weights");
        compute.synchronize();
        weights_on_device.assign(values, values + count);
        sliced.slices = {};
    }
};

CudaBackend::CudaBackend(std::shared_ptr<const ExpandedKey> key, std::size_t memory_limit) : key_(std::move(key)) {
    const DeviceGuard guard(key_->device());
    state_ = std::make_unique<State>(key_->state(), memory_limit);
}

CudaBackend::~CudaBackend() {
    if (state_ == nullptr) return;
    try {
        const DeviceGuard guard(key_->device());
        state_->abandon();
        state_.reset();
    } catch (const FheError&) {  // the device is gone, and its memory with it
    }
}

StageSeconds CudaBackend::last_bootstrap() const {
    const std::lock_guard lock(state_->mutex);
    return state_->seconds;
}

std::string CudaBackend::matrix_products() const { return gemm_description(); }

void CudaBackend::keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Job job{"keyswitch",           batch,     {{lwe, s.lwe_bytes()}, {}}, small_lwe, s.small_bytes(),
                      s.keyswitch_scratch(), kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* out) {
            s.keyswitch(in[0], count, static_cast<std::uint32_t*>(out));
        });
    });
}

void CudaBackend::modulus_switch(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Job job{"modulus switch", batch, {{small_lwe, s.small_bytes()}, {}}, switched, s.small_bytes(), 0, kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* out) {
            launch_modulus_switch(s.params(), static_cast<const std::uint32_t*>(in[0]), count, static_cast<std::uint32_t*>(out),
                                  s.compute);
        });
    });
}

void CudaBackend::blind_rotate(const std::uint32_t* switched, std::size_t batch, const TableView& tables, void* glwe,
                               const Progress& progress) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        s.put_tables(tables, batch);
        const Job job{"blind rotation",   batch,           {{switched, s.small_bytes()}, {}}, glwe, s.glwe_bytes(),
                      s.rotate_scratch(), s.rotate_piece()};
        s.run(job, progress, [&](std::size_t first, std::size_t count, const void* const* in, void* out) {
            s.rotate(static_cast<const std::uint32_t*>(in[0]), tables, {first, count}, 0, out);
        });
    });
}

void CudaBackend::sample_extract(const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        s.put(s.coefficients, extract.coefficients, extract.count * 4, "coefficients");
        const Job job{"sample extraction", batch, {{glwe, s.glwe_bytes()}, {}}, lwe, extract.count * s.lwe_bytes(), 0, kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* out) {
            launch_sample_extract(s.params(), in[0], count, s.coefficients.as<std::uint32_t>(), extract.count, out, s.compute);
        });
    });
}

void CudaBackend::bootstrap(const void* lwe, std::size_t batch, const TableView& tables, const ExtractView& extract, void* out,
                            const Progress& progress) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        s.put_tables(tables, batch);
        s.put(s.coefficients, extract.coefficients, extract.count * 4, "coefficients");
        const Job job{"bootstrap",
                      batch,
                      {{lwe, s.lwe_bytes()}, {}},
                      out,
                      extract.count * s.lwe_bytes(),
                      s.keyswitch_scratch() + s.rotate_scratch(),
                      s.rotate_piece()};
        s.seconds = {};
        s.run(job, progress, [&](std::size_t first, std::size_t count, const void* const* in, void* result) {
            State::Slot& slot = s.slots[s.current];
            s.small.reserve(count * s.small_bytes(), "bootstrap");
            auto* small = s.small.as<std::uint32_t>();
            slot.started.record(s.compute);
            s.keyswitch(in[0], count, small);
            launch_modulus_switch(s.params(), small, count, small, s.compute);
            slot.switched.record(s.compute);
            s.rotate(small, tables, {first, count}, extract.count, result);
            slot.rotated.record(s.compute);
            slot.timed = true;
        });
    });
}

void CudaBackend::linear(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* lwe, std::size_t samples,
                         void* out) {
    if (samples == 0 || rows == 0) return;
    State& s = *state_;
    if (columns == 0) {
        std::memset(out, 0, samples * rows * s.lwe_bytes());
        return;
    }
    s.guarded([&] {
        s.put_weights(weights, rows, columns);
        s.linear_bytes.reserve(linear_scratch_bytes(s.params(), s.sliced.padded_columns, samples), "linear layer");
        const Job job{"linear layer", samples, {{lwe, columns * s.lwe_bytes()}, {}}, out, rows * s.lwe_bytes(), 0, kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* result) {
            LinearPiece piece{};
            piece.weights = s.weights.as<std::int8_t>();
            piece.slice_count = s.sliced.slice_count;
            piece.rows = s.sliced.rows;
            piece.columns = s.sliced.columns;
            piece.padded_rows = s.sliced.padded_rows;
            piece.padded_columns = s.sliced.padded_columns;
            piece.lwe = in[0];
            piece.sample_rows = columns;
            piece.positions = 1;
            piece.out = result;
            piece.out_sample_rows = rows;
            piece.samples = count;
            piece.bytes = s.linear_bytes.as<std::int8_t>();
            piece.bytes_space = s.linear_bytes.bytes();
            piece.multiprocessors = s.key.multiprocessors;
            launch_linear(s.params(), piece, s.compute);
        });
    });
}

void CudaBackend::combine(const void* x, std::int64_t scale_x, const void* y, std::int64_t scale_y, std::uint64_t constant,
                          std::size_t batch, void* out) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Job job{"combination", batch, {{x, s.lwe_bytes()}, {y, y == nullptr ? 0 : s.lwe_bytes()}}, out, s.lwe_bytes(), 0,
                      kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* result) {
            launch_combine(s.params(), {in[0], scale_x, y == nullptr ? nullptr : in[1], scale_y, constant, result}, count,
                           s.compute);
        });
    });
}

}  // namespace fhe_core::cuda
