// What follows a matrix product, done to each tile while it is in registers.
#pragma once

#include "matrix.h"

namespace stoker {

// What becomes of a tile's results. Each gets the row, the first output and the two vectors of 16 outputs.
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

}  // namespace stoker
