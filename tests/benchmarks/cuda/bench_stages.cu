// What a bootstrap of few ciphertexts costs beside its rotation: the kernels of keyswitch and modulus switch, and calls of the
// runtime that a session makes. Times only; the words are other tests' business. run_device.sh builds and runs it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/tables/shipped.hpp"
#include "cuda/linear/int8_gemm.hpp"
#include "cuda/stages/stages.hpp"
#include "device_array.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kRepeats = 100;

template <class F>
double host_microseconds(F&& f) {
    f();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRepeats; ++i) f();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kRepeats;
}

// Of one of `kRepeats` behind each other on the stream.
template <class F>
double device_microseconds(F&& f) {
    return 1e3 / kRepeats * median_milliseconds(3, [&] {
               for (int i = 0; i < kRepeats; ++i) f();
           });
}

__global__ void empty_kernel() {}

void time_stages(const ParameterSet& params, std::size_t batch) {
    const std::size_t rows = params.keyswitch_key_rows(), padded = (batch + 15) / 16 * 16;
    const int slices = (params.keyswitch_modulus_log2 + 7) / 8, columns = (params.small_words() + 15) / 16 * 16;
    DeviceArray<std::uint8_t> lwe(batch * params.large_words() * params.word_bytes());
    DeviceArray<std::int8_t> planes(rows * columns * slices), digits(padded * rows);
    DeviceArray<std::int32_t> sums(padded * slices * columns);
    const DeviceArray<std::uint32_t> bodies(batch * params.lane_count()), small(batch * params.small_words()), few(small.size());
    DeviceArray<unsigned long long> counters(few_keyswitch_counters(params));
    DeviceArray<std::uint8_t> elsewhere(std::size_t{128} << 20);  // more than the L2 cache
    const auto fill = [](auto& array, std::uint64_t bound) {
        std::vector<std::uint8_t> bytes(array.size() * sizeof *array.data());
        std::uint64_t state = 1;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = static_cast<std::uint8_t>((state >> 33) % bound);
        }
        require(cudaMemcpy(array.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy");
    };
    fill(lwe, 5);  // words below the modulus
    fill(planes, 256);
    digits.fill(0);
    counters.fill(0);
    const Int8Gemm gemm;
    const Int8Product product{planes.data(),         digits.data(), sums.data(), slices * columns, static_cast<int>(padded),
                              static_cast<int>(rows)};
    const auto cut = [&] { launch_keyswitch_digits(params, lwe.data(), batch, digits.data(), bodies.data(), nullptr); };
    const auto multiply = [&] { gemm(product, nullptr); };
    const auto sum = [&] {
        launch_keyswitch_sums(params, sums.data(), slices, columns, bodies.data(), batch, small.data(), nullptr);
    };
    const auto round = [&] { launch_modulus_switch(params, small.data(), batch, small.data(), nullptr); };
    if (batch <= most_of_few_keyswitch(params)) {
        const auto at_once = [&] {
            launch_keyswitch_few(params, {lwe.data(), planes.data(), slices, columns, counters.data(), few.data(), batch}, nullptr);
        };
        cut();
        multiply();
        sum();
        round();
        at_once();
        at_once();
        const auto expected = small.host(), found = few.host();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected[i];
        const double alone = device_microseconds(at_once);
        const double flushed = 1e3 * median_milliseconds(21, [&] { elsewhere.fill(1); });
        const double with_flush = 1e3 * median_milliseconds(21, [&] {
                                      elsewhere.fill(1);
                                      at_once();
                                  });
        std::printf("    in one launch: wrong %zu, %.1f us, %.1f when the key is in no cache\n", wrong, alone,
                    with_flush - flushed);
    }
    std::printf(
        "%.*s, batch %zu, product %d x %zu x %zu: digits %.1f us, product %.1f (tiled %.1f), sums %.1f, modulus switch %.1f, all "
        "%.1f\n",
        static_cast<int>(params.name.size()), params.name.data(), batch, product.m, padded, rows, device_microseconds(cut),
        device_microseconds(multiply), device_microseconds([&] { launch_tiled_int8(product, nullptr); }), device_microseconds(sum),
        device_microseconds(round), device_microseconds([&] {
            cut();
            multiply();
            sum();
            round();
        }));
}

void time_runtime() {
    cudaStream_t stream, other;
    cudaEvent_t event, timed;
    void* pinned = nullptr;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    require(cudaEventCreate(&timed), "event");
    require(cudaMallocHost(&pinned, 1 << 20), "host memory");
    const DeviceArray<std::uint8_t> device(1 << 20);
    std::vector<char> pageable(8192);
    std::size_t free = 0, total = 0;
    cudaPointerAttributes attributes;
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
        require(cudaMemcpyAsync(to, from, 8192, kind, stream), "copy");
        require(cudaStreamSynchronize(stream), "copy");
    };
    std::printf("host microseconds: memory information %.2f", host_microseconds([&] { cudaMemGetInfo(&free, &total); }));
    std::printf(", pointer attributes %.2f", host_microseconds([&] { cudaPointerGetAttributes(&attributes, pageable.data()); }));
    std::printf(", event record %.2f, timed %.2f", host_microseconds([&] { cudaEventRecord(event, stream); }),
                host_microseconds([&] { cudaEventRecord(timed, stream); }));
    std::printf(", stream waits %.2f", host_microseconds([&] { cudaStreamWaitEvent(other, event); }));
    require(cudaDeviceSynchronize(), "idle");
    std::printf(", launch %.2f", host_microseconds([&] { empty_kernel<<<1, 32, 0, stream>>>(); }));
    require(cudaDeviceSynchronize(), "idle");
    std::printf(", launch and wait %.2f", host_microseconds([&] {
                    empty_kernel<<<1, 32, 0, stream>>>();
                    cudaStreamSynchronize(stream);
                }));
    std::printf(", five launches and wait %.2f", host_microseconds([&] {
                    for (int i = 0; i < 5; ++i) empty_kernel<<<1, 32, 0, stream>>>();
                    cudaStreamSynchronize(stream);
                }));
    std::printf(", 8 KiB up pinned %.2f, pageable %.2f, down pinned %.2f, pageable %.2f",
                host_microseconds([&] { copy(device.data(), pinned, cudaMemcpyHostToDevice); }),
                host_microseconds([&] { copy(device.data(), pageable.data(), cudaMemcpyHostToDevice); }),
                host_microseconds([&] { copy(pinned, device.data(), cudaMemcpyDeviceToHost); }),
                host_microseconds([&] { copy(pageable.data(), device.data(), cudaMemcpyDeviceToHost); }));
    void* memory = nullptr;
    std::printf(", allocation and release in the pool %.2f", host_microseconds([&] {
                    cudaMallocAsync(&memory, 8192, stream);
                    cudaFreeAsync(memory, stream);
                }));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < 5; ++i) empty_kernel<<<1, 32, 0, stream>>>();
    require(cudaStreamEndCapture(stream, &graph), "capture");
    require(cudaGraphInstantiate(&executable, graph, 0), "graph");
    std::printf(", graph of five launches and wait %.2f\n", host_microseconds([&] {
                    cudaGraphLaunch(executable, stream);
                    cudaStreamSynchronize(stream);
                }));
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    if (count > 1 && arguments[1] == std::string("check")) return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    require(cudaFree(nullptr), "device");
    std::printf("%s\n", gemm_description().c_str());
    for (const fhe_core::ParameterSet& params : fhe_core::kParameterSets)
        for (const char* name : {"gate_64", "lut2", "lut3", "lut4", "nn2_wide"})
            if (params.name == name)
                for (const std::size_t batch : {1, 2, 8, 30}) time_stages(params, batch);
    time_runtime();
    return EXIT_SUCCESS;
}
