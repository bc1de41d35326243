// What a program of WebAssembly brings along: the tag of C++ exceptions, memory that is asked for, errors as values.
#include <cstdlib>
#include <new>
#include <string>

#include "core/secure_memory.hpp"
#include "wasm/exports.hpp"

// The tag under which C++ exceptions are thrown; compiler-rt defines it where exceptions are built in.
__asm__(
    ".globl __cpp_exception\n"
    ".tagtype __cpp_exception i32\n"
    "__cpp_exception:\n");

// The library's own end the program where there is no memory: it is built without exceptions.
void* operator new(std::size_t bytes) {
    if (void* found = std::malloc(bytes == 0 ? 1 : bytes)) return found;
    throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace fhe_core {
namespace {

const char* kept_class = "";
std::string kept_message;

}  // namespace

void keep_error(const char* error_class, const char* message) {
    kept_class = error_class;
    kept_message = message;
}

FHE_CORE_EXPORT(error_class) const char* error_class() { return kept_class; }
FHE_CORE_EXPORT(error_message) const char* error_message() { return kept_message.c_str(); }

// nullptr where there is no memory.
FHE_CORE_EXPORT(allocate) void* allocate(std::size_t bytes) { return std::malloc(bytes == 0 ? 1 : bytes); }
// Overwritten first: phases and keys pass through this memory.
FHE_CORE_EXPORT(release) void release(void* data, std::size_t bytes) {
    erase_memory(data, bytes);
    std::free(data);
}

}  // namespace fhe_core
