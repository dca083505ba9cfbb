// Activations as whole numbers of one byte, with a scale for each 64 of a row, and their products with weights of one byte.
#pragma once

#include <memory>

#include "matrix.h"

namespace stoker {

constexpr int64_t kQuantizedGroup = 64;
constexpr int kQuantizedRows = kMaxRows > 1 ? kMaxRows / 2 : 1;  // each sum has a whole number and a float32

inline int64_t count_groups(int64_t inputs) { return (inputs + kQuantizedGroup - 1) / kQuantizedGroup; }

// Rows of a linear layer's input, padded with zeros to whole groups.
struct QuantizedRows {
  std::unique_ptr<int8_t[]> values;
  std::unique_ptr<float[]> scales;
  // The weights are 128 too large: the sum of a group begins with -128 times that of its activations.
  std::unique_ptr<int32_t[]> starts;

  // Makes room; one thread does so, while no other is at work.
  void reserve(int64_t rows, int64_t inputs) {
    const int64_t groups = rows * count_groups(inputs);
    if (groups <= capacity_) return;
    values.reset(new int8_t[static_cast<size_t>(groups * kQuantizedGroup)]);
    scales.reset(new float[static_cast<size_t>(groups)]);
    starts.reset(new int32_t[static_cast<size_t>(groups)]);
    capacity_ = groups;
  }

  // Group number `group` of a row; x: its `size` first values, the rest are zeros.
  void quantize(const bf16* x, int64_t size, int64_t group) {
    bf16 padded[kQuantizedGroup] = {};
    if (size < kQuantizedGroup) x = static_cast<const bf16*>(std::memcpy(padded, x, sizeof(bf16) * static_cast<size_t>(size)));
    uint16_t largest_bits = 0;
    for (int i = 0; i < kQuantizedGroup; ++i) largest_bits = std::max<uint16_t>(largest_bits, x[i] & 0x7fff);
    const float largest = to_float(largest_bits);
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    int8_t* target = values.get() + group * kQuantizedGroup;
    for (int i = 0; i < kQuantizedGroup; i += kLanes) store_int8(target + i, load_bf16(x + i) * broadcast(inverse));
    int32_t sum = 0;
    for (int i = 0; i < kQuantizedGroup; ++i) sum += target[i];
    // An infinity is larger than its group's scale can say, and a NaN is larger still: the result is NaN.
    scales[group] = largest <= kLargestFloat ? largest / 127.0f : NAN;
    starts[group] = -128 * sum;
  }

  void quantize_row(const bf16* x, int64_t inputs, int64_t row) {
    for (int64_t first = 0; first < inputs; first += kQuantizedGroup)
      quantize(x + first, std::min(kQuantizedGroup, inputs - first), row * count_groups(inputs) + first / kQuantizedGroup);
  }

 private:
  static constexpr float kLargestFloat = 3.4028234664e38f;
  int64_t capacity_ = 0;
};

// The sums of some rows with a tile's columns. Groups are added up in their order: a row's sums do not depend on the rows beside it.
template <int rows>
inline void add_groups(const QuantizedRows& x, int64_t first_row, const uint8_t* tile, int64_t inputs, Floats (&sums)[rows][2]) {
  const int64_t num_groups = count_groups(inputs), stride = num_groups * kQuantizedGroup;
  const int8_t* values = x.values.get() + first_row * stride;
  const float* scales = x.scales.get() + first_row * num_groups;
  const int32_t* starts = x.starts.get() + first_row * num_groups;
  for (int64_t group = 0; group < num_groups; ++group) {
    Integers parts[rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) parts[r][0] = parts[r][1] = broadcast_integer(starts + r * num_groups + group);
    const int64_t end = std::min(round_up(inputs, 4), (group + 1) * kQuantizedGroup);
    for (int64_t i = group * kQuantizedGroup; i < end; i += 4) {
      const Integers first = load_bytes(tile + i * kTileColumns), second = load_bytes(tile + i * kTileColumns + 4 * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Integers row = broadcast_integer(reinterpret_cast<const int32_t*>(values + r * stride + i));
        parts[r][0] = dot(parts[r][0], first, row);
        parts[r][1] = dot(parts[r][1], second, row);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Floats scale = broadcast(scales[r * num_groups + group]);
      for (int c = 0; c < 2; ++c) sums[r][c] = multiply_add(to_floats(parts[r][c]), scale, sums[r][c]);
    }
  }
}

}  // namespace stoker
