// Device arrays: allocation, copies, and arithmetic on LWE words outside sessions.
#include "cuda/device/device_array.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/errors.hpp"
#include "cuda/device/device_memory.hpp"
#include "cuda/stages/expand_key.hpp"
#include "cuda/stages/rows.hpp"

namespace fhe_core::cuda {
namespace {

cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }
StreamHandle handle_of(cudaStream_t stream) { return reinterpret_cast<StreamHandle>(stream); }

std::size_t count_of(const DeviceArray::Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                           [](std::size_t a, std::int64_t b) { return a * static_cast<std::size_t>(b); });
}

int checked_device(int device) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "start of CUDA");
    if (device < 0 || device >= count)
        throw DeviceError("device cuda:" + std::to_string(device) + ": expected a number below " + std::to_string(count) +
                          "; 'cloakwork devices' lists them");
    return device;
}

// Small arguments of one launch, gone when the stream has passed it.
class Uploaded {
   public:
    Uploaded(const void* host, std::size_t bytes, int device, cudaStream_t stream) {
        if (host == nullptr || bytes == 0) return;
        memory_ = std::make_unique<DeviceMemory>(device, bytes, stream, "arguments");
        DevicePool::of(device).copy_in(memory_->data(), host, bytes, stream, "upload of arguments");
        stream_ = stream;
    }
    void after_launch() {
        if (memory_ != nullptr) memory_->record_write(stream_);
    }
    template <class T>
    const T* as() const {
        return memory_ == nullptr ? nullptr : static_cast<const T*>(memory_->data());
    }

   private:
    std::unique_ptr<DeviceMemory> memory_;
    cudaStream_t stream_ = nullptr;
};

RowTerm term_of(const RowOperand& operand, const Uploaded& rows, const Uploaded& factors, std::size_t count) {
    return {operand.words == nullptr ? nullptr : operand.words->data(),
            {rows.as<std::int32_t>(), std::max<std::size_t>(count, 1), 0},
            factors.as<std::int64_t>(),
            operand.factor};
}

}  // namespace

// --- the value ---

DeviceArray DeviceArray::allocate(int device, Shape shape, int word_bytes, StreamHandle stream, const char* what) {
    const DeviceGuard guard(checked_device(device));
    DeviceArray array;
    array.shape_ = std::move(shape);
    array.word_bytes_ = word_bytes;
    array.memory_ = std::make_shared<DeviceMemory>(device, array.bytes(), stream_of(stream), what);
    return array;
}

DeviceArray DeviceArray::upload(int device, const void* host, Shape shape, int word_bytes) {
    const DeviceGuard guard(checked_device(device));
    const StreamHandle stream = exchange_stream(device);
    DeviceArray array = allocate(device, std::move(shape), word_bytes, stream, "upload");
    check(cudaMemcpyAsync(array.data(), host, array.bytes(), cudaMemcpyHostToDevice, stream_of(stream)), "upload");
    array.record_write(stream);
    array.synchronize();  // the host's memory may change from now on
    return array;
}

DeviceArray DeviceArray::adopt(int device, void* data, Shape shape, int word_bytes, std::shared_ptr<void> owner) {
    const DeviceGuard guard(checked_device(device));
    DeviceArray array;
    array.shape_ = std::move(shape);
    array.word_bytes_ = word_bytes;
    if (array.size() != 0 && place_of(data, device) != Place::device)
        throw DeviceError("import of a device array: expected memory of cuda:" + std::to_string(device) +
                          ", found host memory; pass it as a numpy array");
    array.memory_ = std::make_shared<DeviceMemory>(device, data, std::move(owner));
    array.record_write(exchange_stream(device));
    return array;
}

int DeviceArray::device() const { return memory_->device(); }
void* DeviceArray::data() const { return static_cast<char*>(memory_->data()) + first_byte_; }
std::size_t DeviceArray::size() const { return count_of(shape_); }

void DeviceArray::download(void* host) const {
    const DeviceGuard guard(device());
    const cudaStream_t stream = DevicePool::of(device()).exchange();
    memory_->wait_in(stream);
    check(cudaMemcpyAsync(host, data(), bytes(), cudaMemcpyDeviceToHost, stream), "download");
    memory_->record_read(stream);
    const Event done;
    done.record(stream);
    done.synchronize();
}

DeviceArray DeviceArray::to_device(int other) const {
    if (other == device()) return *this;
    const DeviceGuard guard(checked_device(other));
    const StreamHandle stream = exchange_stream(other);
    DeviceArray copy = allocate(other, shape_, word_bytes_, stream, "copy between devices");
    wait_in(stream);
    check(cudaMemcpyPeerAsync(copy.data(), other, data(), device(), bytes(), stream_of(stream)), "copy between devices");
    record_read(stream);
    copy.record_write(stream);
    return copy;
}

DeviceArray DeviceArray::view(std::size_t first_word, Shape shape) const {
    DeviceArray part = *this;
    part.first_byte_ += first_word * word_bytes_;
    part.shape_ = std::move(shape);
    return part;
}

void DeviceArray::synchronize() const {
    const DeviceGuard guard(device());
    memory_->synchronize();
}

void DeviceArray::wait_in(StreamHandle stream) const { memory_->wait_in(stream_of(stream)); }
void DeviceArray::record_read(StreamHandle stream) const { memory_->record_read(stream_of(stream)); }
void DeviceArray::record_write(StreamHandle stream) const { memory_->record_write(stream_of(stream)); }
void DeviceArray::lend() const { memory_->lend(); }

StreamHandle exchange_stream(int device) { return handle_of(DevicePool::of(checked_device(device)).exchange()); }

void order_streams(int device, StreamHandle stream, StreamHandle theirs) {
    const DeviceGuard guard(checked_device(device));
    const Event done;
    done.record(stream_of(theirs));
    done.wait_in(stream_of(stream));
}

MemoryInfo memory_info(int device) {
    const DeviceGuard guard(checked_device(device));
    MemoryInfo info{};
    check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "memory of the device");
    info.free_bytes += DevicePool::of(device).idle_bytes();
    return info;
}

// --- arithmetic ---

DeviceArray combine_rows(const ParameterSet& params, const RowOperand& x, const RowOperand& y, const std::uint64_t* constants,
                         std::size_t rows) {
    const int device = x.words->device();
    const DeviceGuard guard(device);
    const cudaStream_t stream = DevicePool::of(device).exchange();
    const StreamHandle handle = handle_of(stream);
    const DeviceArray out = DeviceArray::allocate(device, {static_cast<std::int64_t>(rows), params.large_words()},
                                                  params.word_bytes(), handle, "arithmetic on ciphertexts");
    for (const RowOperand* operand : {&x, &y})
        if (operand->words != nullptr) operand->words->wait_in(handle);
    Uploaded x_rows(x.rows, rows * 4, device, stream), y_rows(y.rows, rows * 4, device, stream);
    Uploaded x_factors(x.factors, rows * 8, device, stream), y_factors(y.factors, rows * 8, device, stream);
    Uploaded added(constants, rows * 8, device, stream);
    launch_rows(params,
                {term_of(x, x_rows, x_factors, rows), term_of(y, y_rows, y_factors, rows), added.as<std::uint64_t>(),
                 std::max<std::size_t>(rows, 1), out.data()},
                rows, stream);
    for (const RowOperand* operand : {&x, &y})
        if (operand->words != nullptr) operand->words->record_read(handle);
    out.record_write(handle);
    for (Uploaded* arguments : {&x_rows, &y_rows, &x_factors, &y_factors, &added}) arguments->after_launch();
    return out;
}

DeviceArray concatenate(const std::vector<DeviceArray>& parts, std::size_t outer, DeviceArray::Shape shape) {
    const int device = parts.front().device();
    const DeviceGuard guard(device);
    const cudaStream_t stream = DevicePool::of(device).exchange();
    const StreamHandle handle = handle_of(stream);
    const DeviceArray out = DeviceArray::allocate(device, std::move(shape), parts.front().word_bytes(), handle, "concatenation");
    if (out.size() == 0) return out;
    const std::size_t pitch = out.bytes() / outer;
    char* target = static_cast<char*>(out.data());
    for (const DeviceArray& part : parts) {
        const std::size_t width = part.bytes() / outer;
        if (width == 0) continue;
        part.wait_in(handle);
        check(cudaMemcpy2DAsync(target, pitch, part.data(), width, width, outer, cudaMemcpyDeviceToDevice, stream),
              "concatenation");
        part.record_read(handle);
        target += width;
    }
    out.record_write(handle);
    return out;
}

DeviceArray leading_columns(const DeviceArray& words, std::int64_t count) {
    const DeviceGuard guard(words.device());
    const cudaStream_t stream = DevicePool::of(words.device()).exchange();
    const StreamHandle handle = handle_of(stream);
    const std::size_t row = words.shape().back() * words.word_bytes(), rows = row == 0 ? 0 : words.bytes() / row;
    const DeviceArray out = DeviceArray::allocate(words.device(), {static_cast<std::int64_t>(rows), count}, words.word_bytes(),
                                                  handle, "leading columns");
    if (out.size() == 0) return out;
    const std::size_t width = out.bytes() / rows;
    words.wait_in(handle);
    check(cudaMemcpy2DAsync(out.data(), width, words.data(), row, width, rows, cudaMemcpyDeviceToDevice, stream),
          "leading columns");
    words.record_read(handle);
    out.record_write(handle);
    return out;
}

bool all_below(const DeviceArray& words, std::uint64_t bound) {
    const DeviceGuard guard(words.device());
    const cudaStream_t stream = DevicePool::of(words.device()).exchange();
    const DeviceArray flag = DeviceArray::allocate(words.device(), {1}, 4, handle_of(stream), "check of words");
    check(cudaMemsetAsync(flag.data(), 0, 4, stream), "check of words");
    words.wait_in(handle_of(stream));
    launch_range_check(words.data(), words.word_bytes(), words.size(), bound, static_cast<std::uint32_t*>(flag.data()), stream);
    words.record_read(handle_of(stream));
    flag.record_write(handle_of(stream));
    std::uint32_t outside = 0;
    flag.download(&outside);
    return outside == 0;
}

DeviceArray expand_ciphertexts(const ParameterSet& params, CiphertextKind kind, const Seed& seed, const void* host_bodies,
                               std::size_t first, std::size_t batch, int device) {
    const DeviceGuard guard(checked_device(device));
    const cudaStream_t stream = DevicePool::of(device).exchange();
    const bool is_lwe = kind == CiphertextKind::lwe;
    const int size = params.polynomial_size(), body_words = params.lane_count() * (is_lwe ? 1 : size);
    const auto count = static_cast<std::int64_t>(batch);
    const DeviceArray::Shape shape =
        is_lwe ? DeviceArray::Shape{count, params.large_words()} : DeviceArray::Shape{count, params.component_count(), size};
    const DeviceArray out =
        DeviceArray::allocate(device, shape, params.word_bytes(), handle_of(stream), "expansion of ciphertexts");
    Uploaded bodies(host_bodies, batch * body_words * params.word_bytes(), device, stream);
    ExpandCiphertextsView view{};
    view.seed = seed_words(seed);
    view.domain = is_lwe ? kDomainLwe : kDomainGlwe;
    view.bodies = bodies.as<void>();
    view.out = out.data();
    view.first = first;
    view.batch = batch;
    view.streams = is_lwe ? 1 : params.glwe_dimension();
    view.count = is_lwe ? params.large_dimension() : size;
    view.body_words = body_words;
    launch_expand_ciphertexts(params, view, stream);
    out.record_write(handle_of(stream));
    bodies.after_launch();
    return out;
}

}  // namespace fhe_core::cuda
