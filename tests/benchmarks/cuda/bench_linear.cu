// Ways to a linear layer on words of the device, one beside the other: the engine's with each value of CLOAKWORK_LINEAR, wgmma with
// words cut where the engine does not cut them (inside, before), cuBLAS on chunks with a recombination of its own. Each is checked
// against sums in 128 bits, then timed. Multiply-adds are rows * columns * words * items * slices of a word * slices of a weight.
//
//     bench_linear [check | profile | auto|mma|wgmma|inside|before|cublas|algorithms [case ..]]
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "cuda/linear/int8_gemm.hpp"
#include "cuda/linear/linear.hpp"
#include "cuda/linear/linear_wgmma.cuh"
#include "cuda/linear/split_words.cuh"
#include "device_array.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda {
namespace {

struct Case {
    const char* name;
    Shape shape;
    int rows, columns, samples, positions;
    std::int64_t largest;
};

constexpr Shape kGate{512, 2, 1, {8, 2}, {7, 2}, CmuxKind::binary_pair}, kLut4{2048, 1, 2, {24, 1}, {24, 1}, CmuxKind::binary_pair};
const Case kCases[] = {
    {"square", kGate, 1024, 1024, 64, 1, 127},       {"square_two_slices", kGate, 1024, 1024, 64, 1, 30000},
    {"one_sample", kGate, 1024, 1024, 1, 1, 127},    {"wide", kGate, 4096, 1024, 16, 1, 127},
    {"deep", kGate, 1024, 4096, 16, 1, 127},         {"mnist", kGate, 30, 784, 64, 1, 127},
    {"mnist_one", kGate, 30, 784, 1, 1, 127},        {"convolution8", kGate, 8, 784, 1, 196, 127},
    {"convolution64", kGate, 64, 144, 16, 196, 127}, {"two_limbs", kLut4, 1024, 1024, 16, 1, 127},
    {"two_limbs_mnist", kLut4, 30, 784, 16, 1, 127}, {"two_limbs_one", kLut4, 1024, 1024, 1, 1, 127},
    {"mnist_4", kGate, 30, 784, 4, 1, 127},          {"mnist_8", kGate, 30, 784, 8, 1, 127},
    {"mnist_16", kGate, 30, 784, 16, 1, 127},        {"rows128", kGate, 128, 784, 16, 1, 127},
    {"two_samples", kGate, 1024, 1024, 2, 1, 127},   {"convolution128", kGate, 128, 576, 4, 49, 127},
};

bool all_right = true;

// One layer and its words on the device.
template <class Word>
struct Problem {
    const Case c;
    const ParameterSet params;
    std::vector<std::int32_t> weights, gather;
    SlicedWeights sliced;
    std::size_t words, items;
    DeviceArray<Word> lwe, out;
    std::vector<Word> in;
    DeviceArray<std::int32_t> device_gather;

    static std::vector<std::int32_t> random_weights(const Case& c) {
        std::mt19937_64 generator(1);
        std::vector<std::int32_t> weights(std::size_t(c.rows) * c.columns);
        for (auto& w : weights) w = static_cast<std::int32_t>(std::int64_t(generator() % (2 * c.largest + 1)) - c.largest);
        return weights;
    }
    static std::vector<std::int32_t> random_gather(const Case& c) {
        std::mt19937_64 generator(2);
        std::vector<std::int32_t> gather(std::size_t(c.positions) * c.columns);
        for (auto& row : gather) row = static_cast<std::int32_t>(generator() % (c.columns + 1)) - 1;
        return gather;
    }
    explicit Problem(const Case& which)
        : c(which),
          params(bench_parameters(c.shape, 4)),
          weights(random_weights(c)),
          gather(random_gather(c)),
          sliced(slice_weights(weights.data(), c.rows, c.columns)),
          words(params.large_dimension() + 1),
          items(std::size_t(c.samples) * c.positions),
          lwe(c.samples * c.columns * words),
          out(items * c.rows * words),
          in(lwe.size()),
          device_gather(gather) {
        std::uint64_t state = 1;
        for (Word& word : in) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<Word>((state >> 5) % params.modulus());
        }
        require(cudaMemcpy(lwe.data(), in.data(), in.size() * sizeof(Word), cudaMemcpyHostToDevice), "copy to the device");
    }
    const std::int32_t* rows_of_positions() const { return c.positions == 1 ? nullptr : device_gather.data(); }
    double products() const { return double(c.rows) * c.columns * words * items * word_slices(params) * sliced.slice_count; }
    void measure(const char* name, const std::function<void()>& run) {
        out.fill(0xff);
        run();
        require(cudaDeviceSynchronize(), name);
        const std::vector<Word> got = out.host();
        const auto modulus = static_cast<__int128>(params.modulus());
        std::mt19937_64 generator(3);
        std::size_t wrong = 0, unwritten = 0;
        for (int i = 0; i < 20000; ++i) {
            const std::size_t at = i < 1000 ? got.size() - 1 - i : generator() % got.size(), word = at % words,
                              r = at / words % c.rows, p = at / words / c.rows % c.positions, s = at / words / c.rows / c.positions;
            __int128 total = 0;
            for (int column = 0; column < c.columns; ++column) {
                const int row = c.positions == 1 ? column : gather[p * c.columns + column];
                if (row >= 0)
                    total += static_cast<__int128>(weights[r * c.columns + column]) * in[(s * c.columns + row) * words + word];
            }
            wrong += got[at] != static_cast<Word>((total % modulus + modulus) % modulus);
        }
        for (const Word word : got) unwritten += word >= params.modulus();
        all_right = all_right && wrong + unwritten == 0;
        show(name, median_milliseconds(20, run), wrong, unwritten);
    }
    void show(const char* name, float milliseconds, std::size_t wrong, std::size_t unwritten) const {
        std::printf("%-18s %5d x %4d, %2d x %3d, %d slices | %-34s | %zu wrong %zu unwritten | %8.4f ms %7.1f T\n", c.name, c.rows,
                    c.columns, c.samples, c.positions, sliced.slice_count, name, wrong, unwritten, milliseconds,
                    products() / milliseconds / 1e9);
        std::fflush(stdout);
    }
};

// --- the engine's ---

template <class Word>
void run_engine(const Case& c, LinearKernel kernel, const char* name) {
    Problem<Word> p(c);
    const DeviceArray<std::int8_t> slices(p.sliced.slices), tiles(tile_weights(p.sliced));
    const std::size_t scratch = linear_scratch_bytes(p.params, p.sliced.padded_columns, p.items);
    DeviceArray<std::int8_t> bytes(scratch);
    LinearPiece piece{};
    piece.weights = slices.data();
    piece.tiles = tiles.data();
    piece.kernel = kernel;
    piece.slice_count = p.sliced.slice_count;
    piece.rows = c.rows;
    piece.columns = c.columns;
    piece.padded_rows = p.sliced.padded_rows;
    piece.padded_columns = p.sliced.padded_columns;
    piece.lwe = p.lwe.data();
    piece.sample_rows = c.columns;
    piece.gather = p.rows_of_positions();
    piece.positions = c.positions;
    piece.out = p.out.data();
    piece.out_sample_rows = std::size_t(c.positions) * c.rows;
    piece.samples = c.samples;
    piece.bytes = bytes.data();
    piece.bytes_space = scratch;
    piece.multiprocessors = device_multiprocessors();
    p.measure(name, [&] { launch_linear(p.params, piece, nullptr); });
}

// --- wgmma, a way of cutting chosen here ---

template <class Tile>
struct Wgmma {
    using Word = typename Tile::Word;
    Problem<Word>& p;
    DeviceArray<std::int8_t> weights, bytes;
    LinearView view;

    explicit Wgmma(Problem<Word>& problem)
        : p(problem),
          weights(tile_weights(p.sliced)),
          bytes(Tile::kCutInside ? 1 : (p.items * p.words + Tile::kGroupWords) * word_slices(p.params) * p.sliced.padded_columns),
          view(view_of(p)) {
        view.weights = weights.data();
        view.bytes = bytes.data();
    }
    static LinearView view_of(Problem<Word>& p) {
        LinearView view{};
        view.lwe = p.lwe.data();
        view.gather = p.rows_of_positions();
        view.out = p.out.data();
        view.sample_rows = p.c.columns;
        view.out_sample_rows = std::size_t(p.c.positions) * p.c.rows;
        view.slice_count = p.sliced.slice_count;
        view.rows = p.c.rows;
        view.row_blocks = (p.c.rows + kRowBlock - 1) / kRowBlock;
        view.columns = p.c.columns;
        view.column_stages = p.sliced.padded_columns / kOperandColumns;
        view.words = static_cast<std::uint32_t>(p.words);
        view.mask_words = view.words - 1;
        view.positions = p.c.positions;
        view.items = static_cast<std::uint32_t>(p.items);
        for (int i = 0; i < kMostFactors; ++i) {
            view.factor[0][i] = Modulus<0>::centre(pow_mod(256, i + 4, Modulus<0>::p));
            view.factor[1][i] = Modulus<1>::centre(pow_mod(256, i + 4, Modulus<1>::p));
        }
        return view;
    }
    void cut() const {
        const CutWords<Tile> body{view};
        launch(body, body.blocks(), Tile::kGroupBytes, nullptr);
    }
    void multiply() const {
        const int blocks = std::min(all_tiles<Tile>(view), device_multiprocessors());
        require(enqueue(linear_wgmma_kernel<Tile>, blocks, Tile::kThreads, Tile::kSharedBytes, nullptr, view), "launch");
    }
    void run(const std::string& name) {
        p.measure(name.c_str(), [&] {
            if (!Tile::kCutInside) cut();
            multiply();
        });
        if (Tile::kCutInside) return;
        p.show((name + ": cut alone").c_str(), median_milliseconds(20, [&] { cut(); }), 0, 0);
        p.show((name + ": product alone").c_str(), median_milliseconds(20, [&] { multiply(); }), 0, 0);
    }
};

template <int limbs, bool inside>
void run_wgmma(const Case& c) {
    Problem<std::conditional_t<limbs == 1, std::uint32_t, std::uint64_t>> p(c);
    const auto with_tile = [&](auto row_groups) {
        constexpr int kRowGroups = decltype(row_groups)::value;
        const std::string label = std::string("wgmma, cut ") + (inside ? "inside" : "before");
        if (p.sliced.slice_count == 1)
            Wgmma<WgmmaTile<limbs, kRowGroups, true, inside>>(p).run(label);
        else
            Wgmma<WgmmaTile<limbs, kRowGroups, false, inside>>(p).run(label);
    };
    if (c.rows > kRowBlock)
        with_tile(Index<2>{});
    else
        with_tile(Index<1>{});
}

// --- cuBLAS on chunks of items ---

// Words from sums [weight slice][row][word slice][number].
template <class Word>
struct RecombineSums {
    static constexpr int kThreads = 256;
    static constexpr int kSlices = sizeof(Word) == 4 ? 4 : 7, kLimbs = sizeof(Word) == 4 ? 1 : 2;
    const std::int32_t* sums;
    LinearView view;
    std::uint32_t first_item, numbers, pitch, padded_rows;  // of a chunk

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(std::size_t(view.rows) * numbers, [&](std::size_t i) {
            const auto row = static_cast<std::uint32_t>(i / numbers), number = static_cast<std::uint32_t>(i) - row * numbers;
            std::int32_t totals[2] = {0, 0};
            for (int slice = 0; slice < view.slice_count; ++slice) {
                std::int64_t sum[2] = {0, 0};
#pragma unroll
                for (int s = 0; s < kSlices; ++s) {
                    const std::int32_t x = sums[(std::size_t(slice) * padded_rows + row) * pitch + s * numbers + number];
                    sum[0] += multiply_wide(x, view.factor[0][slice + s]);
                    if (kLimbs == 2) sum[1] += multiply_wide(x, view.factor[1][slice + s]);
                }
                totals[0] = wrap_add(totals[0], montgomery(Modulus<0>{}, sum[0]));
                if (kLimbs == 2) totals[1] = wrap_add(totals[1], montgomery(Modulus<1>{}, sum[1]));
            }
            const std::uint32_t item = number / view.words;
            Word* const out =
                static_cast<Word*>(view.out) + view.out_word(first_item + item) + row * view.words + (number - item * view.words);
            if constexpr (kLimbs == 1)
                *out = accumulate_exact(Modulus<0>{}, 0, totals[0]);
            else
                *out = compose_limbs(accumulate_exact(Modulus<0>{}, 0, totals[0]), accumulate_exact(Modulus<1>{}, 0, totals[1]));
        });
    }
};

template <class Word>
void run_cublas(const Case& c) {
    Problem<Word> p(c);
    using Tile = WgmmaTile<sizeof(Word) == 4 ? 1 : 2, 2, true, false>;
    const LinearView view = Wgmma<Tile>::view_of(p);
    const DeviceArray<std::int8_t> slices(p.sliced.slices);
    const int slice_count = word_slices(p.params), columns = p.sliced.padded_columns;
    const Int8Gemm gemm;
    std::printf("%s\n", gemm_description().c_str());
    for (const std::size_t chunk : {1, 2, 3, 4, 6, 8, 16}) {
        if (chunk > p.items) break;
        const std::size_t most = chunk * p.words * slice_count + 16;
        DeviceArray<std::int8_t> bytes(most * columns);
        DeviceArray<std::int32_t> sums(most * p.sliced.slice_count * p.sliced.padded_rows);
        const auto for_chunks = [&](bool cut, bool multiply, bool recombine) {
            for (std::size_t first = 0; first < p.items; first += chunk) {
                const int count = static_cast<int>(std::min(chunk, p.items - first));
                const SplitWords<Word> split{p.lwe.data(), view.gather, bytes.data(), std::size_t(c.columns), first,
                                             int(p.words), c.columns,   columns,      int(view.positions),    count};
                constexpr int kTile = SplitWords<Word>::kTile;
                if (cut) launch(split, split.blocks(), kTile * (kTile + 1) * sizeof(Word), nullptr);
                const int m = static_cast<int>((count * p.words * slice_count + 15) / 16 * 16);
                if (multiply)
                    gemm({bytes.data(), slices.data(), sums.data(), m, p.sliced.slice_count * p.sliced.padded_rows, columns},
                         nullptr);
                const RecombineSums<Word> join{sums.data(),          view,
                                               std::uint32_t(first), std::uint32_t(count * p.words),
                                               std::uint32_t(m),     std::uint32_t(p.sliced.padded_rows)};
                if (recombine) launch_over(join, std::size_t(c.rows) * count * p.words, nullptr);
            }
        };
        const std::string name =
            "cuBLAS, " + std::to_string(chunk) + " items, " + std::to_string(sums.size() * 4 >> 20) + " MiB of sums";
        p.measure(name.c_str(), [&] { for_chunks(true, true, true); });
        p.show("  cut alone", median_milliseconds(10, [&] { for_chunks(true, false, false); }), 0, 0);
        p.show("  products alone", median_milliseconds(10, [&] { for_chunks(false, true, false); }), 0, 0);
        p.show("  recombination alone", median_milliseconds(10, [&] { for_chunks(false, false, true); }), 0, 0);
    }
}

// --- algorithms of cuBLASLt for one product ---

struct Lt {
    void* library = nullptr;
    template <class F>
    F load(const char* name) const {
        return reinterpret_cast<F>(dlsym(library, name));
    }
};

void require_status(int status, const char* what) {
    if (status == 0) return;
    std::printf("cuBLASLt: %s: status %d\n", what, status);
    std::exit(EXIT_FAILURE);
}

void run_algorithms() {
    std::printf("%s\n", gemm_description().c_str());
    {
        const Int8Gemm opened;
    }
    Lt lt;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13"})
        if (lt.library == nullptr) lt.library = dlopen(name, RTLD_NOW);
    if (lt.library == nullptr) {
        std::printf("no cuBLASLt: %s\n", dlerror());
        return;
    }
    struct Algorithm {
        std::uint64_t data[8];
    };
    struct Found {
        Algorithm algorithm;
        std::size_t workspace;
        int status;
        float waves;
        int reserved[4];
    };
    constexpr int kCompute32I = 72, kInt32 = 10, kInt8 = 3, kTransposeA = 3, kMostWorkspace = 1;
    void *handle = nullptr, *description = nullptr, *preference = nullptr;
    const std::size_t workspace_bytes = std::size_t{64} << 20;
    require_status(lt.load<int (*)(void**)>("cublasLtCreate")(&handle), "create");
    require_status(lt.load<int (*)(void**, int, int)>("cublasLtMatmulDescCreate")(&description, kCompute32I, kInt32),
                   "description");
    const int transposed = 1;
    require_status(lt.load<int (*)(void*, int, const void*, std::size_t)>("cublasLtMatmulDescSetAttribute")(
                       description, kTransposeA, &transposed, sizeof transposed),
                   "transpose");
    require_status(lt.load<int (*)(void**)>("cublasLtMatmulPreferenceCreate")(&preference), "preference");
    require_status(lt.load<int (*)(void*, int, const void*, std::size_t)>("cublasLtMatmulPreferenceSetAttribute")(
                       preference, kMostWorkspace, &workspace_bytes, sizeof workspace_bytes),
                   "workspace");
    const auto layout = lt.load<int (*)(void**, int, std::uint64_t, std::uint64_t, std::int64_t)>("cublasLtMatrixLayoutCreate");
    const auto heuristic =
        lt.load<int (*)(void*, void*, void*, void*, void*, void*, void*, int, Found*, int*)>("cublasLtMatmulAlgoGetHeuristic");
    const auto matmul = lt.load<int (*)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                                        void*, void*, void*, const void*, void*, std::size_t, cudaStream_t)>("cublasLtMatmul");
    const DeviceArray<std::int8_t> workspace(workspace_bytes);
    for (const auto [m, n, k] : {std::array{4112, 1024, 1024}, std::array{16400, 1024, 1024}, std::array{65600, 1024, 1024},
                                 std::array{262400, 1024, 1024}, std::array{1024, 65600, 1024}, std::array{65600, 1024, 4096}}) {
        std::vector<std::int8_t> host(std::size_t(std::max(m, n)) * k);
        std::mt19937 generator(1);
        for (std::size_t i = 0; i + 4 <= host.size(); i += 4) {
            const std::uint32_t four = generator();
            std::memcpy(host.data() + i, &four, 4);
        }
        const DeviceArray<std::int8_t> a(std::vector<std::int8_t>(host.begin(), host.begin() + std::size_t(m) * k)),
            b(std::vector<std::int8_t>(host.begin(), host.begin() + std::size_t(n) * k));
        const DeviceArray<std::int32_t> sums(std::size_t(m) * n);
        void *la = nullptr, *lb = nullptr, *lc = nullptr;
        require_status(layout(&la, kInt8, k, m, k), "layout");
        require_status(layout(&lb, kInt8, k, n, k), "layout");
        require_status(layout(&lc, kInt32, m, n, m), "layout");
        Found found[12];
        int count = 0;
        const int status = heuristic(handle, description, la, lb, lc, lc, preference, 12, found, &count);
        std::printf("m %d n %d k %d: status %d, %d algorithms:", m, n, k, status, count);
        const std::int32_t one = 1, zero = 0;
        for (int i = 0; i < count; ++i) {
            if (found[i].status != 0) continue;
            int failed = 0;
            const float milliseconds = median_milliseconds(5, [&] {
                failed |= matmul(handle, description, &one, a.data(), la, b.data(), lb, &zero, sums.data(), lc, sums.data(), lc,
                                 &found[i].algorithm, workspace.data(), workspace_bytes, nullptr);
            });
            std::printf(" %.1f%s", failed == 0 ? double(m) * n * k / milliseconds / 1e9 : 0.0, i + 1 == count ? "" : ",");
        }
        std::printf(" T\n");
        std::fflush(stdout);
    }
}

// --- ---

template <int limbs>
void run_limbs(const Case& c, const std::string& what) {
    using Word = std::conditional_t<limbs == 1, std::uint32_t, std::uint64_t>;
    if (what == "auto") run_engine<Word>(c, LinearKernel::automatic, "auto");
    if (what == "mma") run_engine<Word>(c, LinearKernel::mma, "mma");
    if (what == "wgmma") run_engine<Word>(c, LinearKernel::wgmma, "wgmma");
    if (what == "inside") run_wgmma<limbs, true>(c);
    if (what == "before") run_wgmma<limbs, false>(c);
    if (what == "cublas") run_cublas<Word>(c);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    const std::vector<std::string> words(arguments + 1, arguments + count);
    const std::string what = words.empty() ? "all" : words[0];
    if (what == "algorithms") return run_algorithms(), EXIT_SUCCESS;
    const auto run = [](const Case& c, const std::string& way) {
        if (c.shape.limb_count == 1)
            run_limbs<1>(c, way);
        else
            run_limbs<2>(c, way);
    };
    if (what == "check" || what == "profile") {
        for (const char* way : {"wgmma", "mma"}) run(kCases[what == "check" ? 5 : 0], way);
        return all_right ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    for (const Case& c : kCases) {
        if (words.size() > 1 && std::find(words.begin() + 1, words.end(), c.name) == words.end()) continue;
        if (what != "all") run(c, what);
        for (const char* way : {"auto", "mma", "wgmma"})
            if (what == "all") run(c, way);
    }
    return all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}
