// The one loop under every matrix product: a tile of rows × columns of the result, kept in registers while the inner dimension goes by.
#pragma once

#include "simd.h"

namespace stoker {

// A tile of `rows` × 16 · `columns` sums.
template <int rows, int columns>
struct Tile {
  Floats sums[rows][columns];

  inline void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) sums[r][c] = zeros();
  }

  // Adds rows of `a` (pairs along the inner dimension, `a_stride` pairs from row to row) times columns, whose pair i load_columns(i, result) gives.
  // A sum's order is that of the pairs, whatever the tile: a row's result does not depend on the rows beside it.
  template <typename Load>
  inline void add(const uint32_t* a, ptrdiff_t a_stride, int num_pairs, const Load& load_columns) {
    for (int i = 0; i < num_pairs; ++i) {
      Pairs column[columns];
      load_columns(i, column);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        Pairs row = broadcast_pair(a + r * a_stride + i);
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) sums[r][c] = dot(sums[r][c], row, column[c]);
      }
    }
  }

  // The same with columns in memory: pair i of column vector c is b[c] + i · b_stride.
  inline void add(const uint32_t* a, ptrdiff_t a_stride, const uint32_t* const (&b)[columns], ptrdiff_t b_stride, int num_pairs) {
    add(a, a_stride, num_pairs, [&](int i, Pairs(&column)[columns]) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) column[c] = load_pairs(b[c] + i * b_stride);
    });
  }
};

// Calls body(std::integral_constant<int, rows>) for a number of rows known at run time only, 1 to kMaxRows.
template <int rows>
struct Rows {
  static constexpr int value = rows;
};

template <int rows = kMaxRows, typename Body>
inline void with_rows(int number, Body&& body) {
  if constexpr (rows > 1) {
    if (number != rows) return with_rows<rows - 1>(number, body);
  }
  body(Rows<rows>{});
}

}  // namespace stoker
