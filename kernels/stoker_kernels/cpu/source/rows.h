// What is done to each row by itself: norms, rotation, embedding.
#pragma once

#include "simd.h"

namespace stoker {

// x / sqrt(mean(x²) + ε), rounded, times weight.
inline void rms_norm(const bf16* x, const bf16* weight, int64_t size, float epsilon, bf16* out) {
  Floats squares = zeros();
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Floats values = load_bf16(x + i);
    squares = multiply_add(values, values, squares);
  }
  float sum = total(squares);
  for (; i < size; ++i) sum += to_float(x[i]) * to_float(x[i]);
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(size) + epsilon);
  const Floats scales = broadcast(scale);
  for (i = 0; i + kLanes <= size; i += kLanes) store_bf16(out + i, rounded_to_bf16(load_bf16(x + i) * scales) * load_bf16(weight + i));
  for (; i < size; ++i) out[i] = to_bf16(round_to_bf16(to_float(x[i]) * scale) * to_float(weight[i]));
}

inline void add_to_residual(const bf16* x, bf16* residual, int64_t size) {
  for (int64_t i = 0; i < size; ++i) residual[i] = to_bf16(to_float(residual[i]) + to_float(x[i]));
}

// Rotates the pairs (x[i], x[i + half]) of one head; every product is rounded. cos and sin: [half].
inline void rotate(bf16* x, const bf16* cos, const bf16* sin, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    Floats first = load_bf16(x + i), second = load_bf16(x + half + i), c = load_bf16(cos + i), s = load_bf16(sin + i);
    store_bf16(x + i, rounded_to_bf16(first * c) - rounded_to_bf16(second * s));
    store_bf16(x + half + i, rounded_to_bf16(second * c) + rounded_to_bf16(first * s));
  }
  for (; i < half; ++i) {
    float first = to_float(x[i]), second = to_float(x[half + i]), c = to_float(cos[i]), s = to_float(sin[i]);
    x[i] = to_bf16(round_to_bf16(first * c) - round_to_bf16(second * s));
    x[half + i] = to_bf16(round_to_bf16(second * c) + round_to_bf16(first * s));
  }
}

inline void silu_and_multiply(const bf16* gate, const bf16* up, int64_t size, bf16* out) {
  int64_t i = 0;
  auto apply = [](Floats g, Floats u) { return rounded_to_bf16(silu(g)) * u; };
  for (; i + kLanes <= size; i += kLanes) store_bf16(out + i, apply(load_bf16(gate + i), load_bf16(up + i)));
  if (i < size) {
    bf16 gates[kLanes] = {}, ups[kLanes] = {}, results[kLanes];
    std::memcpy(gates, gate + i, sizeof(bf16) * static_cast<size_t>(size - i));
    std::memcpy(ups, up + i, sizeof(bf16) * static_cast<size_t>(size - i));
    store_bf16(results, apply(load_bf16(gates), load_bf16(ups)));
    std::memcpy(out + i, results, sizeof(bf16) * static_cast<size_t>(size - i));
  }
}

}  // namespace stoker
