// Linear layers: x [rows, inputs] times packed weights, with what follows the product done to each tile while it is in registers.
#pragma once

#include "pool.h"
#include "tile.h"

namespace stoker {

constexpr int kTileColumns = 2 * kLanes;

// Weights [outputs, inputs] as tiles of 32 outputs: [outputs / 32][inputs / 2][32][2], zeros past the last output. `inputs` is even.
struct Matrix {
  const uint32_t* tiles;
  const bf16* bias;  // [outputs] or null
  int64_t inputs;
  int64_t outputs;
};

// What becomes of a tile's sums. Each gets the row, the first output and the two vectors of 16 outputs.
struct StoreFloats {
  float* out;
  int64_t stride;
  int64_t outputs;
  inline void operator()(int64_t row, int64_t column, const Floats (&x)[2]) const {
    float* target = out + row * stride + column;
    if (column + kTileColumns <= outputs) {
      store(target, x[0]);
      store(target + kLanes, x[1]);
    } else {
      float values[kTileColumns];
      store(values, x[0]);
      store(values + kLanes, x[1]);
      std::memcpy(target, values, sizeof(float) * static_cast<size_t>(outputs - column));
    }
  }
};

struct StoreRounded {
  bf16* out;
  int64_t stride;
  int64_t outputs;
  inline void operator()(int64_t row, int64_t column, const Floats (&x)[2]) const {
    bf16* target = out + row * stride + column;
    if (column + kTileColumns <= outputs) {
      store_bf16(target, x[0]);
      store_bf16(target + kLanes, x[1]);
    } else {
      bf16 values[kTileColumns];
      store_bf16(values, x[0]);
      store_bf16(values + kLanes, x[1]);
      std::memcpy(target, values, sizeof(bf16) * static_cast<size_t>(outputs - column));
    }
  }
};

// residual += product, the product rounded first.
struct AddToResidual {
  bf16* residual;
  int64_t stride;
  int64_t outputs;
  inline void operator()(int64_t row, int64_t column, const Floats (&x)[2]) const {
    bf16* target = residual + row * stride + column;
    if (column + kTileColumns <= outputs) {
      for (int c = 0; c < 2; ++c) store_bf16(target + c * kLanes, load_bf16(target + c * kLanes) + rounded_to_bf16(x[c]));
    } else {
      bf16 values[kTileColumns];
      store_bf16(values, x[0]);
      store_bf16(values + kLanes, x[1]);
      for (int64_t i = 0; i < outputs - column; ++i) target[i] = to_bf16(to_float(target[i]) + to_float(values[i]));
    }
  }
};

inline Floats silu(Floats x) { return x / (broadcast(1.0f) + exponential(zeros() - x)); }

// silu(gate) · up, for weights in which 16 outputs of gate alternate with 16 of up. `outputs` counts those of up.
struct SiluAndMultiply {
  bf16* out;
  int64_t stride;
  int64_t outputs;
  inline void operator()(int64_t row, int64_t column, const Floats (&x)[2]) const {
    Floats gate = rounded_to_bf16(silu(rounded_to_bf16(x[0])));
    Floats result = gate * rounded_to_bf16(x[1]);
    int64_t first = column / 2;
    bf16* target = out + row * stride + first;
    if (first + kLanes <= outputs) {
      store_bf16(target, result);
    } else {
      bf16 values[kLanes];
      store_bf16(values, result);
      std::memcpy(target, values, sizeof(bf16) * static_cast<size_t>(outputs - first));
    }
  }
};

template <int rows, typename Epilogue>
inline void multiply_rows(const uint32_t* x, ptrdiff_t stride, const Matrix& weights, int64_t tile, int64_t first_row, const Epilogue& epilogue) {
  const int num_pairs = static_cast<int>(weights.inputs / 2);
  const uint32_t* columns = weights.tiles + tile * num_pairs * kTileColumns;
  const uint32_t* const b[2] = {columns, columns + kLanes};
  Tile<rows, 2> sums;
  sums.clear();
  sums.add(x + first_row * stride, stride, b, kTileColumns, num_pairs);
  Floats bias[2] = {zeros(), zeros()};
  if (weights.bias != nullptr)
    for (int c = 0; c < 2; ++c) bias[c] = load_bf16(weights.bias + tile * kTileColumns + c * kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const Floats result[2] = {sums.sums[r][0] + bias[0], sums.sums[r][1] + bias[1]};
    epilogue(first_row + r, tile * kTileColumns, result);
  }
}

// All rows of x [rows, inputs] (`stride` elements from row to row) by all threads of the pool, tile after tile; rows are split evenly.
template <typename Epilogue>
inline void linear(Worker& worker, const bf16* x, int64_t stride, int64_t rows, const Matrix& weights, const Epilogue& epilogue) {
  const auto* pairs = reinterpret_cast<const uint32_t*>(x);
  const int num_tiles = static_cast<int>((weights.outputs + kTileColumns - 1) / kTileColumns);
  const int num_blocks = static_cast<int>((rows + kMaxRows - 1) / kMaxRows);
  const int chunk = num_tiles / (worker.count() * 8) > 1 ? num_tiles / (worker.count() * 8) : 1;
  worker.share(num_tiles, chunk, [&](int tile) {
    int64_t first = 0;
    for (int block = 0; block < num_blocks; ++block) {
      int number = static_cast<int>((rows - first + (num_blocks - block) - 1) / (num_blocks - block));
      with_rows(number, [&](auto count) { multiply_rows<decltype(count)::value>(pairs, stride / 2, weights, tile, first, epilogue); });
      first += number;
    }
  });
}

// Lays out weights [outputs, inputs] as Matrix has them. `interleaved`: rows are gate, then up; the tiles alternate 16 of each.
inline void pack(Worker& worker, const bf16* weights, int64_t outputs, int64_t inputs, bool interleaved, uint32_t* tiles) {
  const int num_pairs = static_cast<int>(inputs / 2);
  const int64_t half = outputs / 2;
  const int64_t padded_half = (half + kLanes - 1) / kLanes * kLanes;
  const int64_t columns = interleaved ? 2 * padded_half : (outputs + kTileColumns - 1) / kTileColumns * kTileColumns;
  auto row_of = [&](int64_t column) -> int64_t {
    if (!interleaved) return column < outputs ? column : -1;
    int64_t index = column / kTileColumns * kLanes + column % kLanes;
    if (index >= half) return -1;
    return column % kTileColumns < kLanes ? index : half + index;
  };
  worker.share(static_cast<int>(columns / kLanes), 4, [&](int group) {
    uint32_t* target = tiles + (static_cast<int64_t>(group) / 2 * num_pairs) * kTileColumns + (group % 2) * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      int64_t row = row_of(static_cast<int64_t>(group) * kLanes + lane);
      const auto* source = reinterpret_cast<const uint32_t*>(weights + (row < 0 ? 0 : row * inputs));
      for (int i = 0; i < num_pairs; ++i) target[static_cast<int64_t>(i) * kTileColumns + lane] = row < 0 ? 0 : source[i];
    }
  });
}

}  // namespace stoker
