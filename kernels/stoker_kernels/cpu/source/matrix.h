// Weights as products take them: in tiles of 32 outputs, in one of three formats.
#pragma once

#include <algorithm>

#include "pool.h"
#include "simd_int8.h"

namespace stoker {

constexpr int kTileColumns = 2 * kLanes;

enum class Format : int64_t {
  kBfloat16 = 0,  // [outputs / 32][inputs / 2][32][2] bf16
  kInt8 = 1,      // [outputs / 32][inputs / 2][64] codes, times a scale for each output; activations stay bf16
  kInt8Dot = 2,   // [outputs / 32][inputs / 4][32][4] bytes, 128 more than the weight, times a scale for each output; activations become int8
};

// Weights [outputs, inputs], zeros past the last output and input. `inputs` is even.
struct Matrix {
  const void* tiles;
  const bf16* bias;     // [outputs], padded to whole tiles, or null
  const float* scales;  // as bias; null in bf16
  int64_t inputs;
  int64_t outputs;
  Format format;
};

inline int64_t round_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

// Bytes of one tile.
inline int64_t tile_bytes(Format format, int64_t inputs) {
  if (format == Format::kInt8Dot) return round_up(inputs, 4) * kTileColumns;
  return inputs * kTileColumns * (format == Format::kInt8 ? 1 : 2);
}

// Which row of the weights is a tile's column; -1 past the last. `interleaved`: rows are gate, then up; the tiles alternate 16 of each.
inline int64_t row_of_column(int64_t column, int64_t outputs, bool interleaved) {
  if (!interleaved) return column < outputs ? column : -1;
  const int64_t half = outputs / 2, index = column / kTileColumns * kLanes + column % kLanes;
  if (index >= half) return -1;
  return column % kTileColumns < kLanes ? index : half + index;
}

inline int64_t count_tiles(int64_t outputs, bool interleaved) { return interleaved ? (outputs / 2 + kLanes - 1) / kLanes : (outputs + kTileColumns - 1) / kTileColumns; }

inline void pack_bf16_row(const bf16* weights, int64_t inputs, int lane, uint32_t* tile) {
  for (int64_t i = 0; i < inputs / 2; ++i) std::memcpy(tile + i * kTileColumns + lane, weights + 2 * i, sizeof(uint32_t));
}

// Writes one output's weights to its lane of a tile as whole numbers of -127 to 127, to the nearest, ties to even; returns what these are times: NaN where a weight is not finite.
inline float pack_int8_row(const bf16* weights, int64_t inputs, int lane, Format format, uint8_t* tile) {
  float largest = 0.0f;
  for (int64_t i = 0; i < inputs; ++i) {
    const float size = std::fabs(to_float(weights[i]));
    if (!std::isfinite(size)) return NAN;
    largest = std::max(largest, size);
  }
  const float scale = largest / 127.0f;
  for (int64_t i = 0; i < inputs; ++i) {
    const int value = scale > 0.0f ? static_cast<int>(std::nearbyint(to_float(weights[i]) / scale)) : 0;
    if (format == Format::kInt8) {
      tile[i / 2 * kPairBytes + int8_position(2 * lane + static_cast<int>(i % 2))] = int8_code(value);
    } else {
      tile[(i / 4 * kTileColumns + lane) * 4 + i % 4] = static_cast<uint8_t>(value + 128);
    }
  }
  return scale;
}

// Lays out weights [outputs, inputs] in a format, into zeroed tiles; scales: one for each column, or null for bf16.
inline void pack(Worker& worker, const bf16* weights, int64_t outputs, int64_t inputs, bool interleaved, Format format, void* tiles, float* scales) {
  const int64_t bytes = tile_bytes(format, inputs);
  worker.share(static_cast<int>(count_tiles(outputs, interleaved)), 2, [&](int index) {
    auto* tile = static_cast<uint8_t*>(tiles) + index * bytes;
    for (int lane = 0; lane < kTileColumns; ++lane) {
      const int64_t column = static_cast<int64_t>(index) * kTileColumns + lane, row = row_of_column(column, outputs, interleaved);
      if (row < 0) continue;
      if (format == Format::kBfloat16) {
        pack_bf16_row(weights + row * inputs, inputs, lane, reinterpret_cast<uint32_t*>(tile));
      } else {
        scales[column] = pack_int8_row(weights + row * inputs, inputs, lane, format, tile);
      }
    }
  });
}

}  // namespace stoker
