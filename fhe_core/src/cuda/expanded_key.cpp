#include "cuda/expanded_key.hpp"

#include <algorithm>

#include "core/errors.hpp"
#include "core/tables/paper.hpp"
#include "cuda/stages/expand_key.hpp"
#include "cuda/stages/stages.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kStepsPerPiece = 32;  // between two progress calls
constexpr int kMostModulusLog2 = 26;
constexpr int kMostDigitLog2 = 7;  // digits of the keyswitch are signed bytes

constexpr bool is_supported(const ParameterSet& p) {
    const std::int64_t largest_sum = std::int64_t(p.keyswitch_key_rows()) * 128 << (p.keyswitch_gadget.base_log - 1);
    return p.polynomial_size() >= 256 && p.polynomial_size() <= 4096 && p.glwe_dimension() >= 1 && p.glwe_dimension() <= 4 &&
           p.lane_count() >= 1 && (p.lane_count() == 1 || !p.has_rounded_products()) &&
           p.keyswitch_modulus_log2 <= kMostModulusLog2 && p.keyswitch_modulus_log2 > p.log2_twice_table_size() &&
           p.keyswitch_gadget.base_log <= kMostDigitLog2 && largest_sum < (std::int64_t{1} << 31) && p.row_count() <= 20 &&
           p.shape.mask_gadget.base_log <= 26 && p.shape.body_gadget.base_log <= 26;
}

constexpr bool all_supported() {
    for (const ParameterSet& params : kAllSets)
        if (!is_supported(params)) return false;
    return true;
}
static_assert(all_supported(), "a shipped parameter set is outside what the CUDA kernels hold in 32 and 62 bits");

std::string bad_device(int device, int count) {
    return "device cuda:" + std::to_string(device) + ": expected a number below " + std::to_string(count) +
           "; 'cloakwork devices' lists them";
}

int checked_device(int device) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "start of CUDA");
    if (count == 0) check(cudaErrorNoDevice, "start of CUDA");
    if (device < 0 || device >= count) throw DeviceError(bad_device(device, count));
    return device;
}

template <class T>
DeviceBuffer uploaded(const std::vector<T>& values, const char* what) {
    DeviceBuffer buffer(values.size() * sizeof(T), what);
    check(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), what);
    return buffer;
}

template <int limb, int number = limb>
void make_plain_tables(ExpandedKey::State& state) {
    const ParameterSet& p = state.params;
    state.plain_twiddles[limb] =
        uploaded(plain_twiddles<number>(p.polynomial_size(), p.log2_polynomial_size()), "tables of the transform");
    state.plain_powers[limb] = uploaded(plain_powers<number>(p.polynomial_size()), "tables of the transform");
}

void report(const Progress& progress, std::size_t done, std::size_t total) {
    if (progress && !progress(done, total)) throw CancelledError("the key expansion was cancelled");
}

void expand_bootstrap_key(ExpandedKey::State& state, const SeededEvaluationKeysView& keys, const Progress& progress) {
    const ParameterSet& p = state.params;
    const std::size_t steps = p.key_step_count(), step_bytes = p.bootstrap_key_body_words() / steps * p.key_limbs().word_bytes();
    state.bootstrap_key.reserve(state.layout.step_words() * steps * sizeof(std::int32_t), "bootstrap key");
    const DeviceBuffer bodies(kStepsPerPiece * step_bytes, "bodies of the bootstrap key");
    const Stream stream;
    for (std::size_t first = 0; first < steps; first += kStepsPerPiece) {
        const std::size_t count = std::min<std::size_t>(kStepsPerPiece, steps - first);
        check(cudaMemcpyAsync(bodies.data(), static_cast<const char*>(keys.bootstrap_bodies) + first * step_bytes,
                              count * step_bytes, cudaMemcpyHostToDevice, stream),
              "upload of the bootstrap key");
        launch_expand_bootstrap_key(p,
                                    {state.layout,
                                     seed_words(keys.seed),
                                     {state.tables(0), state.tables(1)},
                                     bodies.data(),
                                     state.bootstrap_key.as<std::int32_t>(),
                                     static_cast<int>(first),
                                     static_cast<int>(count),
                                     state.params.has_rounded_products() ? state.shaped_twiddles.data() : nullptr},
                                    stream);
        stream.synchronize();
        report(progress, first + count, steps + 1);
    }
}

void expand_keyswitch_key(ExpandedKey::State& state, const SeededEvaluationKeysView& keys) {
    const ParameterSet& p = state.params;
    state.keyswitch_rows = p.keyswitch_key_rows();
    state.slices = (p.keyswitch_modulus_log2 + 7) / 8;
    state.columns = static_cast<int>((p.small_words() + kGemmAlignment - 1) / kGemmAlignment * kGemmAlignment);
    state.keyswitch_planes.reserve(state.keyswitch_rows * state.columns * state.slices, "keyswitch key");
    const std::size_t body_bytes = state.keyswitch_rows * p.lane_count() * 4;
    const DeviceBuffer bodies(body_bytes, "bodies of the keyswitch key");
    const Stream stream;
    check(cudaMemcpyAsync(bodies.data(), keys.keyswitch_bodies, body_bytes, cudaMemcpyHostToDevice, stream),
          "upload of the keyswitch key");
    launch_expand_keyswitch_key(p,
                                {seed_words(keys.seed), bodies.as<std::uint32_t>(), state.keyswitch_planes.as<std::int8_t>(),
                                 state.keyswitch_rows, state.columns, state.slices},
                                stream);
    stream.synchronize();
}

}  // namespace

int device_count() noexcept {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError();
    return 0;
}

std::vector<DeviceInfo> devices() {
    int count = 0;
    check(cudaGetDeviceCount(&count), "start of CUDA");
    std::vector<DeviceInfo> list;
    for (int number = 0; number < count; ++number) {
        cudaDeviceProp properties;
        DeviceInfo info{number, "", "", 0, 0, 0, false, ""};
        try {
            check(cudaGetDeviceProperties(&properties, number), "properties of the device");
            info.name = properties.name;
            info.compute_capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
            info.multiprocessors = properties.multiProcessorCount;
            const DeviceGuard guard(number);
            check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "memory of the device");
            launch_probe();
            info.usable = true;
            info.details = gemm_description();
        } catch (const DeviceError& error) {
            info.details = error.what();
        }
        list.push_back(std::move(info));
    }
    return list;
}

ExpandedKey::ExpandedKey(const SeededEvaluationKeysView& keys, int device, KernelChoice choice, const Progress& progress)
    : state_(std::make_unique<State>()) {
    State& state = *state_;
    state.params = *keys.params;
    if (!is_supported(state.params))
        throw UnsupportedError("parameter set '" + std::string(state.params.name) +
                               "': the CUDA back end takes N of 256 to 4096, k of 1 to 4, keyswitch digits of at most 7 bits, and "
                               "several lanes without rounded products; use device='cpu'");
    state.device = checked_device(device);
    const DeviceGuard guard(device);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "properties of the device");
    launch_probe();
    state.multiprocessors = properties.multiProcessorCount;
    state.shared_bytes = properties.sharedMemPerBlockOptin;
    const bool has_no_plain_kernel = state.params.has_rounded_products() || state.params.is_ntru();
    const bool wants_shaped = choice == KernelChoice::shaped || has_no_plain_kernel;
    state.shaped = wants_shaped ? find_shaped_kernel(state.params.shape) : nullptr;
    if (state.shaped == nullptr && has_no_plain_kernel)
        throw UnsupportedError("parameter set '" + std::string(state.params.name) +
                               "': this build has no CUDA kernel for it; build from source with CLOAKWORK_KERNEL_SETS=all, or use "
                               "device='cpu'");
    if (state.shaped != nullptr && state.shaped->shared_bytes > state.shared_bytes) state.shaped = nullptr;
    state.at_once = state.multiprocessors;
    if (state.shaped != nullptr && state.shaped->at_once != nullptr) {
        check(state.shaped->at_once(&state.at_once), "layout of the blind rotation");
        if (state.at_once == 0) state.shaped = nullptr;
    }
    if (state.shaped == nullptr && has_no_plain_kernel)
        throw UnsupportedError("parameter set '" + std::string(state.params.name) +
                               "': this device has less shared memory than its rotation wants; use device='cpu'");
    state.layout = state.shaped == nullptr ? KeyLayout::make(state.params, KeyOrder::plain, 32)
                                           : KeyLayout::make(state.params, state.shaped->key_order, state.shaped->lanes);
    make_plain_tables<0>(state);
    if (state.params.transform_limbs().second == 2)
        make_plain_tables<1, 2>(state);
    else if (state.params.limb_count() == 2)
        make_plain_tables<1>(state);
    if (state.shaped != nullptr) {
        state.shaped_twiddles = uploaded(state.shaped->twiddles(), "tables of the transform");
        if (state.shaped->powers != nullptr) state.shaped_powers = uploaded(state.shaped->powers(), "tables of the transform");
        check(choose_cluster_kernels(state.params.shape, state.clusters), "layouts of the blind rotation");
    }
    expand_bootstrap_key(state, keys, progress);
    expand_keyswitch_key(state, keys);
    report(progress, state.params.key_step_count() + 1, state.params.key_step_count() + 1);
}

ExpandedKey::~ExpandedKey() = default;

const ParameterSet& ExpandedKey::parameters() const { return state_->params; }
int ExpandedKey::device() const { return state_->device; }
std::size_t ExpandedKey::memory_bytes() const { return state_->bootstrap_key.bytes() + state_->keyswitch_planes.bytes(); }
std::string ExpandedKey::kernel() const { return state_->shaped == nullptr ? "plain" : "shaped"; }

}  // namespace fhe_core::cuda
