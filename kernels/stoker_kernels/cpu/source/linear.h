// Linear layers: x [rows, inputs] times packed weights, tile after tile, whatever the weights' format.
#pragma once

#include <vector>

#include "epilogue.h"
#include "quantized_rows.h"
#include "tile.h"

namespace stoker {

// Rows of activations, a row `stride` elements from the next; `quantized` has room for them where the weights' format needs it.
struct Input {
  const bf16* x;
  int64_t stride;
  int64_t rows;
  QuantizedRows& quantized;
};

// A tile's sums become results: times the scale of each output, plus its bias, and on to what follows.
template <int rows, typename Epilogue>
inline void finish(const Floats (&sums)[rows][2], const Matrix& weights, int64_t tile, int64_t first_row, const Epilogue& epilogue) {
  Floats bias[2] = {zeros(), zeros()}, scales[2] = {broadcast(1.0f), broadcast(1.0f)};
  for (int c = 0; c < 2; ++c) {
    if (weights.bias != nullptr) bias[c] = load_bf16(weights.bias + tile * kTileColumns + c * kLanes);
    if (weights.scales != nullptr) scales[c] = load(weights.scales + tile * kTileColumns + c * kLanes);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const Floats result[2] = {multiply_add(sums[r][0], scales[0], bias[0]), multiply_add(sums[r][1], scales[1], bias[1])};
    epilogue(first_row + r, tile * kTileColumns, result);
  }
}

// The rows in even parts of at most `most`: body(first row, constant number of rows).
template <int most, typename Body>
inline void split_rows(int64_t rows, Body&& body) {
  const int64_t num_blocks = (rows + most - 1) / most;
  int64_t first = 0;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int number = static_cast<int>((rows - first + (num_blocks - block) - 1) / (num_blocks - block));
    with_rows<most>(number, [&](auto count) { body(first, count); });
    first += number;
  }
}

// From this many rows on the processor looks too few codes ahead by itself: 12 rows take 0.82 of the time when they are asked for. Fewer rows gain nothing.
constexpr int kPrefetchedRows = 6;

// A function of its own: where GCC 12 inlines it, it takes some sums out of their registers, which doubles the time.
template <int rows, typename Load, typename Epilogue>
[[gnu::noinline]] void multiply_rows(const Input& in, int64_t first_row, const Load load_columns, const Matrix& weights, int64_t tile, const Epilogue& epilogue) {
  Tile<rows, 2> result;
  result.clear();
  const auto* x = reinterpret_cast<const uint32_t*>(in.x + first_row * in.stride);
  result.add(x, in.stride / 2, static_cast<int>(weights.inputs / 2), [&](int i, Pairs(&column)[2]) {
    load_columns(i, column);
    if constexpr (rows >= kPrefetchedRows) load_columns.prefetch(i);
  });
  finish<rows>(result.sums, weights, tile, first_row, epilogue);
}

// Columns as they lie in memory.
struct LoadPairs {
  const uint32_t* pairs;
  inline void operator()(int i, Pairs (&column)[2]) const {
    for (int c = 0; c < 2; ++c) column[c] = load_pairs(pairs + static_cast<ptrdiff_t>(i) * kTileColumns + c * kLanes);
  }
  inline void prefetch(int) const {}
};

// Columns of codes, converted.
struct ConvertPairs {
  Int8Tables tables;
  const uint8_t* codes;
  inline void operator()(int i, Pairs (&column)[2]) const { load_int8_pairs(tables, codes + static_cast<ptrdiff_t>(i) * kPairBytes, column); }
  inline void prefetch(int i) const { __builtin_prefetch(codes + static_cast<ptrdiff_t>(i) * kPairBytes + 1024); }
};

// The same, which leaves a copy for the next rows.
struct ConvertAndKeepPairs {
  ConvertPairs convert;
  uint32_t* copy;
  inline void operator()(int i, Pairs (&column)[2]) const {
    convert(i, column);
    for (int c = 0; c < 2; ++c) store_pairs(copy + static_cast<ptrdiff_t>(i) * kTileColumns + c * kLanes, column[c]);
  }
  inline void prefetch(int i) const { convert.prefetch(i); }
};

template <typename Epilogue>
inline void multiply_bf16_tile(const Input& in, const uint32_t* pairs, const Matrix& weights, int64_t tile, const Epilogue& epilogue) {
  split_rows<kMaxRows>(in.rows, [&](int64_t first, auto count) {
    multiply_rows<decltype(count)::value>(in, first, LoadPairs{pairs}, weights, tile, epilogue);
  });
}

// The first rows convert the weights on their way through the registers, those after them take what these left in the cache.
template <typename Epilogue>
inline void multiply_int8_tile(const Input& in, const uint8_t* codes, const Matrix& weights, int64_t tile, const Epilogue& epilogue) {
  const ConvertPairs convert{make_int8_tables(), codes};
  if (in.rows <= kMaxRows)
    return with_rows(static_cast<int>(in.rows), [&](auto count) { multiply_rows<decltype(count)::value>(in, 0, convert, weights, tile, epilogue); });
  thread_local std::vector<uint32_t> converted;
  converted.resize(static_cast<size_t>(weights.inputs / 2 * kTileColumns));
  split_rows<kMaxRows>(in.rows, [&](int64_t first, auto count) {
    constexpr int rows = decltype(count)::value;
    if (first == 0) return multiply_rows<rows>(in, first, ConvertAndKeepPairs{convert, converted.data()}, weights, tile, epilogue);
    multiply_rows<rows>(in, first, LoadPairs{converted.data()}, weights, tile, epilogue);
  });
}

template <int rows, typename Epilogue>
[[gnu::noinline]] void multiply_quantized_rows(const QuantizedRows& x, int64_t first_row, const uint8_t* bytes, const Matrix& weights, int64_t tile,
                                               const Epilogue& epilogue) {
  Tile<rows, 2> result;
  result.clear();
  add_groups<rows>(x, first_row, bytes, weights.inputs, result.sums);
  finish<rows>(result.sums, weights, tile, first_row, epilogue);
}

template <typename Epilogue>
inline void multiply_int8_dot_tile(const Input& in, const uint8_t* bytes, const Matrix& weights, int64_t tile, const Epilogue& epilogue) {
  split_rows<kQuantizedRows>(in.rows, [&](int64_t first, auto count) {
    multiply_quantized_rows<decltype(count)::value>(in.quantized, first, bytes, weights, tile, epilogue);
  });
}

// Every row becomes whole numbers, for one matrix's products.
inline void quantize_rows(Worker& worker, const Input& in, int64_t inputs) {
  worker.share_evenly(static_cast<int>(in.rows), [&](int row) { in.quantized.quantize_row(in.x + row * in.stride, inputs, row); });
  worker.wait_for_all();
}

// All rows by all threads of the pool. The caller waits for all before it uses the results.
template <typename Epilogue>
inline void linear(Worker& worker, const Input& in, const Matrix& weights, const Epilogue& epilogue) {
  if (weights.format == Format::kInt8Dot) quantize_rows(worker, in, weights.inputs);
  const int64_t bytes = tile_bytes(weights.format, weights.inputs);
  const int num_tiles = static_cast<int>((weights.outputs + kTileColumns - 1) / kTileColumns);
  worker.share_evenly(num_tiles, [&](int tile) {
    const auto* start = static_cast<const uint8_t*>(weights.tiles) + tile * bytes;
    switch (weights.format) {
      case Format::kBfloat16: return multiply_bf16_tile(in, reinterpret_cast<const uint32_t*>(start), weights, tile, epilogue);
      case Format::kInt8: return multiply_int8_tile(in, start, weights, tile, epilogue);
      case Format::kInt8Dot: return multiply_int8_dot_tile(in, start, weights, tile, epilogue);
    }
  });
}

}  // namespace stoker
