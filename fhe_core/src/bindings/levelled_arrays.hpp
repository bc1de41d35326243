// What bindings of levelled arithmetic check and share. Words are [..][level][N], each below its prime.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/arrays.hpp"
#include "cpu/levelled.hpp"

namespace fhe_core {

using SharedLevelled = std::shared_ptr<cpu::Levelled>;
using Words32 = pybind11::array_t<std::uint32_t>;
using Extents = std::vector<std::int64_t>;

// Words that products are taken with, checked when they were made: a table [rows][terms][level][N], or a key
// [digit][2][every prime][N].
struct LevelledPrepared {
    std::shared_ptr<const LevelledTables> tables;
    std::vector<std::uint32_t> words;
    Extents shape;
    bool is_key;
};

// [before..][level][N], kAny where an extent is read from the array; each word below its prime.
Words32 checked_words32(const LevelledTables& tables, const pybind11::object& value, const char* name, Extents before);
// ShapeError: words of another object, or a key where a table is wanted, or the other way round.
void check_prepared(bool of_this_object, bool found_key, bool wants_key);
void check_table_shape(const Extents& prepared, const Extents& words);
void check_same_shape(const Extents& a, const Extents& b);
void check_automorphism(const LevelledTables& tables, std::uint64_t g);
void check_keep(std::int64_t level, int keep);

}  // namespace fhe_core
