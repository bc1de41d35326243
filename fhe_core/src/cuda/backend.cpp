// Sessions: the stages in order on one stream. Pieces, copies and memory: session_state.hpp.
#include <cstring>
#include <utility>

#include "cuda/linear/linear.hpp"
#include "cuda/session_state.hpp"
#include "cuda/stages/stages.hpp"

namespace fhe_core::cuda {
namespace {

using State = CudaBackend::State;

constexpr std::size_t kPieceWaves = 8;  // of a blind rotation

const Progress kNoProgress;

std::size_t padded(std::size_t count) { return (count + kGemmAlignment - 1) / kGemmAlignment * kGemmAlignment; }

// Look-up tables and coefficients of a call, on the device.
struct Tables {
    const void* tables;
    const std::uint32_t* index;  // nullptr: table 0 for all
};

Tables put_tables(State& s, const TableView& view, std::size_t batch) {
    const std::size_t bytes = view.table_count * s.params().table_size() * s.params().word_bytes();
    const auto resident = [&](const void* host, std::size_t size) {
        return place_of(host, s.key.device) == Place::device
                   ? host
                   : s.resident.find_or_upload(host, size, s.key.device, s.compute, "look-up tables");
    };
    return {resident(view.tables, bytes),
            view.index == nullptr ? nullptr : static_cast<const std::uint32_t*>(resident(view.index, batch * 4))};
}

const std::uint32_t* put_coefficients(State& s, const ExtractView& extract) {
    return static_cast<const std::uint32_t*>(
        s.resident.find_or_upload(extract.coefficients, extract.count * 4, s.key.device, s.compute, "coefficients"));
}

std::size_t keyswitch_scratch(const State& s) {
    return s.key.keyswitch_rows + std::size_t(s.key.slices) * s.key.columns * 4 + s.params().lane_count() * 4 + s.small_bytes();
}

void keyswitch_piece(State& s, const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    const ExpandedKey::State& key = s.key;
    const std::size_t batch_rows = padded(batch), columns = std::size_t(key.slices) * key.columns;
    s.digits.reserve(batch_rows * key.keyswitch_rows, "keyswitch");
    s.sums.reserve(batch_rows * columns * 4, "keyswitch");
    s.bodies.reserve(batch * s.params().lane_count() * 4, "keyswitch");
    launch_keyswitch_digits(s.params(), lwe, batch, s.digits.as<std::int8_t>(), s.bodies.as<std::uint32_t>(), s.compute);
    s.gemm({key.keyswitch_planes.as<std::int8_t>(), s.digits.as<std::int8_t>(), s.sums.as<std::int32_t>(),
            static_cast<int>(columns), static_cast<int>(batch_rows), static_cast<int>(key.keyswitch_rows)},
           s.compute);
    launch_keyswitch_sums(s.params(), s.sums.as<std::int32_t>(), key.slices, key.columns, s.bodies.as<std::uint32_t>(), batch,
                          small_lwe, s.compute);
}

// Keyswitch and modulus switch.
void switch_piece(State& s, const void* lwe, std::size_t batch, std::uint32_t* switched) {
    if (batch > most_of_few_keyswitch(s.params())) {
        keyswitch_piece(s, lwe, batch, switched);
        return launch_modulus_switch(s.params(), switched, batch, switched, s.compute);
    }
    if (s.few_counters.bytes() == 0) {
        s.few_counters.reserve(few_keyswitch_counters(s.params()) * sizeof(unsigned long long), "keyswitch");
        check(cudaMemsetAsync(s.few_counters.data(), 0, s.few_counters.bytes(), s.compute), "keyswitch");
    }
    launch_keyswitch_few(s.params(),
                         {lwe, s.key.keyswitch_planes.as<std::int8_t>(), s.key.slices, s.key.columns,
                          s.few_counters.as<unsigned long long>(), switched, batch},
                         s.compute);
}

struct Piece {
    std::size_t first, count;
};

BlindRotateView rotate_view(const State& s, const std::uint32_t* switched, const Tables& tables, Piece piece, void* out) {
    BlindRotateView view{};
    view.switched = switched;
    view.key = s.key.bootstrap_key.data();
    view.tables = tables.tables;
    view.table_index = tables.index == nullptr ? nullptr : tables.index + piece.first;
    view.out = out;
    view.batch = static_cast<int>(piece.count);
    view.steps = s.params().step_count();
    return view;
}

void rotate_plain(State& s, const BlindRotateView& view) {
    const int blocks = std::min(view.batch, s.key.wave());
    PlainRotateView plain{view, {s.key.tables(0), s.key.tables(1)}, nullptr};
    if (!s.key.plain_fits_shared()) {
        s.rotation_scratch.reserve(blocks * plain_rotate_bytes(s.params()), "blind rotation");
        plain.scratch = s.rotation_scratch.as<std::int32_t>();
    }
    launch_plain_rotate(s.params(), plain, blocks, s.compute);
}

// Whole GLWE ciphertexts, or (extract.count > 0) LWE ciphertexts of the coefficients, which are on the device.
void rotate_piece(State& s, const std::uint32_t* switched, const Tables& tables, Piece piece, const ExtractView& extract,
                  void* out) {
    BlindRotateView view = rotate_view(s, switched, tables, piece, out);
    if (s.key.shaped != nullptr) {
        view.twiddles = s.key.shaped_twiddles.data();
        view.powers = s.key.shaped_powers.as<std::int32_t>();
        view.coefficients = extract.count == 0 ? nullptr : extract.coefficients;
        view.coefficient_count = static_cast<int>(extract.count);
        for (int limb = 0; limb < s.params().key_limbs().count; ++limb)
            view.plain_twiddles[limb] = s.key.plain_twiddles[limb].data();
        if (s.key.shaped->scratch_bytes != 0) {
            s.rotation_scratch.reserve(s.key.at_once * s.key.shaped->scratch_bytes, "blind rotation");
            view.scratch = s.rotation_scratch.data();
        }
        check(launch_rotation(*s.key.shaped, s.key.clusters, view, s.key.at_once, s.compute), "blind rotation");
    } else if (extract.count == 0) {
        rotate_plain(s, view);
    } else {
        s.glwe.reserve(piece.count * s.rotated_bytes(), "blind rotation");
        view.out = s.glwe.data();
        rotate_plain(s, view);
        launch_sample_extract(s.params(), s.glwe.data(), s.params().extension_factor(), piece.count, extract.coefficients,
                              extract.count, out, s.compute);
    }
}

std::size_t rotate_scratch(const State& s) {
    if (s.key.shaped != nullptr) return 0;
    return s.rotated_bytes() + (s.key.plain_fits_shared() ? 0 : plain_rotate_bytes(s.params()));
}

}  // namespace

CudaBackend::CudaBackend(std::shared_ptr<const ExpandedKey> key, std::size_t memory_limit, std::optional<StreamHandle> stream)
    : key_(std::move(key)) {
    const DeviceGuard guard(key_->device());
    state_ = std::make_unique<State>(key_->state(), memory_limit, stream);
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
    State& s = *state_;
    s.guarded([&] {
        for (State::Slot& slot : s.slots) s.collect(slot);
    });
    return s.seconds;
}

std::string CudaBackend::matrix_products() const { return gemm_description(); }

StreamHandle CudaBackend::stream() const { return reinterpret_cast<StreamHandle>(static_cast<cudaStream_t>(state_->compute)); }

void CudaBackend::synchronize() {
    state_->guarded([&] {
        for (const Stream* stream : {&state_->upload, &state_->compute, &state_->download}) stream->synchronize();
    });
}

std::size_t CudaBackend::cached_bytes() const {
    const std::lock_guard lock(state_->mutex);
    return state_->resident.bytes();
}

DeviceArray CudaBackend::allocate(DeviceArray::Shape shape, int word_bytes, const char* what) {
    DeviceArray array;
    state_->guarded([&] { array = DeviceArray::allocate(key_->device(), std::move(shape), word_bytes, stream(), what); });
    return array;
}

void CudaBackend::before(const std::vector<DeviceArray>& inputs) {
    const DeviceGuard guard(key_->device());
    for (const DeviceArray& input : inputs) input.wait_in(stream());
}

void CudaBackend::after(const std::vector<DeviceArray>& inputs, const DeviceArray* out) {
    const DeviceGuard guard(key_->device());
    for (const DeviceArray& input : inputs) input.record_read(stream());
    if (out != nullptr) out->record_write(stream());
}

void CudaBackend::keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Job job{"keyswitch",          batch,     {s.words(lwe, s.lwe_bytes(), "lwe"), {}}, small_lwe, s.small_bytes(),
                      keyswitch_scratch(s), kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* out) {
            keyswitch_piece(s, in[0], count, static_cast<std::uint32_t*>(out));
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
        const Tables resident = put_tables(s, tables, batch);
        const Job job{
            "blind rotation",          batch, {{switched, s.small_bytes()}, {}}, glwe, s.rotated_bytes(), rotate_scratch(s),
            kPieceWaves * s.key.wave()};
        s.run(job, progress, [&](std::size_t first, std::size_t count, const void* const* in, void* out) {
            rotate_piece(s, static_cast<const std::uint32_t*>(in[0]), resident, {first, count}, {}, out);
        });
    });
}

void CudaBackend::sample_extract(const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const std::uint32_t* coefficients = put_coefficients(s, extract);
        const Job job{
            "sample extraction", batch, {s.words(glwe, s.glwe_bytes(), "glwe"), {}}, lwe, extract.count * s.lwe_bytes(), 0,
            kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* out) {
            launch_sample_extract(s.params(), in[0], 1, count, coefficients, extract.count, out, s.compute);
        });
    });
}

void CudaBackend::bootstrap(const void* lwe, std::size_t batch, const TableView& tables, const ExtractView& extract, void* out,
                            const Progress& progress) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Tables resident = put_tables(s, tables, batch);
        const ExtractView chosen{put_coefficients(s, extract), extract.count};
        const Job job{"bootstrap",
                      batch,
                      {s.words(lwe, s.lwe_bytes(), "lwe"), {}},
                      out,
                      extract.count * s.lwe_bytes(),
                      keyswitch_scratch(s) + rotate_scratch(s),
                      kPieceWaves * s.key.wave()};
        s.seconds = {};
        for (State::Slot& slot : s.slots) slot.timed = false;
        s.run(job, progress, [&](std::size_t first, std::size_t count, const void* const* in, void* result) {
            State::Slot& slot = s.slots[s.current];
            s.small.reserve(count * s.small_bytes(), "bootstrap");
            auto* small = s.small.as<std::uint32_t>();
            s.collect(slot);
            slot.started.record(s.compute);
            switch_piece(s, in[0], count, small);
            slot.switched.record(s.compute);
            rotate_piece(s, small, resident, {first, count}, chosen, result);
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
        s.guarded([&] {
            if (place_of(out, s.key.device) != Place::device)
                std::memset(out, 0, samples * rows * s.lwe_bytes());
            else
                check(cudaMemsetAsync(out, 0, samples * rows * s.lwe_bytes(), s.compute), "linear layer");
        });
        return;
    }
    GatheredLinear layer{nullptr, lwe, samples, columns, nullptr, 1, nullptr, out, rows, nullptr};
    s.guarded([&] { layer.weights = s.resident.find_or_slice(weights, rows, columns, s.key.device, s.compute); });
    linear(layer);
}

std::shared_ptr<const CachedWeights> CudaBackend::upload_weights(const std::int32_t* weights, std::size_t rows,
                                                                 std::size_t columns) {
    std::shared_ptr<const CachedWeights> resident;
    state_->guarded([&] { resident = std::make_shared<CachedWeights>(weights, rows, columns, key_->device(), state_->compute); });
    return resident;
}

void CudaBackend::linear(const GatheredLinear& layer) {
    if (layer.samples == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const std::size_t rows = layer.weights->rows(), columns = layer.weights->columns();
        const auto resident = [&](const void* host, std::size_t bytes) {
            return host == nullptr ? nullptr : s.resident.find_or_upload(host, bytes, s.key.device, s.compute, "linear layer");
        };
        std::vector<std::uint32_t> narrow;  // words of the set's width
        const void* bias = layer.bias;
        if (bias != nullptr && s.params().word_bytes() == 4) {
            narrow.assign(layer.bias, layer.bias + rows);
            bias = narrow.data();
        }
        LinearPiece piece{};
        layer.weights->fill(piece);
        piece.sample_rows = layer.sample_rows;
        piece.gather = static_cast<const std::int32_t*>(resident(layer.gather, layer.positions * columns * 4));
        piece.positions = static_cast<int>(layer.positions);
        piece.bias = resident(bias, rows * s.params().word_bytes());
        piece.out_sample_rows = layer.out_sample_rows;
        piece.out_rows = static_cast<const std::int32_t*>(resident(layer.out_rows, layer.positions * 4));
        piece.multiprocessors = s.key.multiprocessors;
        piece.kernel = s.linear_kernel;
        const std::size_t least = linear_scratch_bytes(s.params(), layer.weights->padded_columns(), 1);
        const std::size_t wanted =
            linear_scratch_bytes(s.params(), layer.weights->padded_columns(), layer.samples * layer.positions);
        if (wanted > s.linear_bytes.bytes())
            s.linear_bytes.reserve(std::max(least, std::min(wanted, s.available_bytes() / 2)), "linear layer");
        layer.weights->wait_in(s.compute);
        const Job job{"linear layer",
                      layer.samples,
                      {s.words(layer.lwe, layer.sample_rows * s.lwe_bytes(), "lwe"), {}},
                      layer.out,
                      layer.out_sample_rows * s.lwe_bytes(),
                      0,
                      kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* result) {
            piece.lwe = in[0];
            piece.out = result;
            piece.samples = count;
            piece.bytes = s.linear_bytes.as<std::int8_t>();
            piece.bytes_space = s.linear_bytes.bytes();
            launch_linear(s.params(), piece, s.compute);
        });
        layer.weights->record_read(s.compute);
    });
}

void CudaBackend::take(const void* x, std::size_t samples, std::size_t sample_rows, const std::int32_t* rows, std::size_t count,
                       void* out) {
    if (samples == 0 || count == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const auto* chosen =
            static_cast<const std::int32_t*>(s.resident.find_or_upload(rows, count * 4, s.key.device, s.compute, "gather"));
        const Job job{"gather", samples,   {s.words(x, sample_rows * s.lwe_bytes(), "x"), {}}, out, count * s.lwe_bytes(),
                      0,        kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t part, const void* const* in, void* result) {
            launch_take(s.params(), in[0], {chosen, count, sample_rows}, result, part * count, s.compute);
        });
    });
}

void CudaBackend::combine(const void* x, std::int64_t scale_x, const void* y, std::int64_t scale_y, std::uint64_t constant,
                          std::size_t batch, void* out) {
    if (batch == 0) return;
    State& s = *state_;
    s.guarded([&] {
        const Input second = y == nullptr ? Input{} : s.words(y, s.lwe_bytes(), "y");
        const Job job{"combination", batch, {s.words(x, s.lwe_bytes(), "x"), second}, out, s.lwe_bytes(), 0, kMostItems};
        s.run(job, kNoProgress, [&](std::size_t, std::size_t count, const void* const* in, void* result) {
            launch_combine(s.params(), {in[0], scale_x, y == nullptr ? nullptr : in[1], scale_y, constant, result}, count,
                           s.compute);
        });
    });
}

}  // namespace fhe_core::cuda
