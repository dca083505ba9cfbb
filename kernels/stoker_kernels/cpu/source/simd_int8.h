// Weights of one byte on sixteen lanes: as bf16 pairs for dot(), and in whole-number products of four.
#pragma once

#include "simd.h"

namespace stoker {

constexpr int kPairBytes = 4 * kLanes;  // one pair of each of a tile's 32 outputs

inline void store_pairs(uint32_t* p, Pairs x) { std::memcpy(p, &x, sizeof x); }

// Sixteen int32.
#if defined(__AVX512BF16__)
struct Integers { __m512i v; };
#elif defined(__AVX2__)
struct Integers { __m256i low, high; };
#else
struct Integers { int32_t v[kLanes]; };
#endif

#if defined(__AVX512BF16__)

// A byte is a sign and a magnitude: the two bytes of its bf16 are looked up by the magnitude. 5 instructions for 64 weights where conversions take 10.
struct Int8Tables { __m512i low[2], high[2]; };

inline Int8Tables make_int8_tables() {
  alignas(64) uint8_t low[128], high[128];
  for (int i = 0; i < 128; ++i) {
    bf16 bits = to_bf16(static_cast<float>(i));
    low[i] = static_cast<uint8_t>(bits & 0xff), high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return {{_mm512_load_si512(low), _mm512_load_si512(low + 64)}, {_mm512_load_si512(high), _mm512_load_si512(high + 64)}};
}

inline uint8_t int8_code(int value) { return static_cast<uint8_t>(value < 0 ? 0x80 | -value : value); }
// Where a tile's weight number `index` (of 64: two halves of each of 16 lanes, twice) is among the bytes of its pair.
inline int int8_position(int index) { return index % 32 / 8 * 16 + index / 32 * 8 + index % 8; }

inline void load_int8_pairs(const Int8Tables& tables, const uint8_t* p, Pairs (&columns)[2]) {
  const __m512i codes = _mm512_loadu_si512(p);
  const __m512i low = _mm512_permutex2var_epi8(tables.low[0], codes, tables.low[1]);
  __m512i high = _mm512_permutex2var_epi8(tables.high[0], codes, tables.high[1]);
  high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);  // high | (codes & 0x80)
  columns[0] = {_mm512_unpacklo_epi8(low, high)};
  columns[1] = {_mm512_unpackhi_epi8(low, high)};
}

#else

struct Int8Tables {};
inline Int8Tables make_int8_tables() { return {}; }
inline uint8_t int8_code(int value) { return static_cast<uint8_t>(value); }

#if defined(__AVX2__)

// The first halves of 8 pairs, then their second halves.
inline int int8_position(int index) { return index / 16 * 16 + index % 2 * 8 + index % 16 / 2; }

inline __m256i int8_to_floats(const uint8_t* p) {
  return _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
}
// 16 bytes to 8 pairs: a whole number of 8 bits is exact in the upper half of its float32.
inline __m256i int8_to_bf16(const uint8_t* p) { return _mm256_or_si256(_mm256_srli_epi32(int8_to_floats(p), 16), int8_to_floats(p + 8)); }
inline void load_int8_pairs(const Int8Tables&, const uint8_t* p, Pairs (&columns)[2]) {
  columns[0] = {int8_to_bf16(p), int8_to_bf16(p + 16)};
  columns[1] = {int8_to_bf16(p + 32), int8_to_bf16(p + 48)};
}

#else

inline int int8_position(int index) { return index; }
inline void load_int8_pairs(const Int8Tables&, const uint8_t* p, Pairs (&columns)[2]) {
  for (int i = 0; i < kPairBytes; i += 2) {
    const uint32_t first = to_bf16(static_cast<int8_t>(p[i])), second = to_bf16(static_cast<int8_t>(p[i + 1]));
    columns[i / 32].v[i % 32 / 2] = first | second << 16;
  }
}

#endif
#endif

// The products of four: per lane, sum += weights (0 to 255) · activations (-127 to 127), four of each.
#if defined(__AVX512BF16__)

inline Integers load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Integers broadcast_integer(const int32_t* p) { return {_mm512_set1_epi32(*p)}; }
inline Integers dot(Integers sum, Integers weights, Integers activations) {
  // GCC 12 spills the sums where the intrinsic is used, which takes twice the time.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(weights.v), "v"(activations.v));
  return sum;
}
inline Floats to_floats(Integers x) { return {_mm512_cvtepi32_ps(x.v)}; }
// Rounds to the nearest, ties to even.
inline void store_int8(int8_t* p, Floats x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v))); }

#elif defined(__AVX2__)

inline Integers load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Integers broadcast_integer(const int32_t* p) { return {_mm256_set1_epi32(*p), _mm256_set1_epi32(*p)}; }
inline __m256i dot(__m256i sum, __m256i weights, __m256i activations) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, _mm256_set1_epi16(0xff)), _mm256_srai_epi16(_mm256_slli_epi16(activations, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(activations, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
inline Integers dot(Integers sum, Integers weights, Integers activations) {
  return {dot(sum.low, weights.low, activations.low), dot(sum.high, weights.high, activations.high)};
}
inline Floats to_floats(Integers x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline void store_int8(int8_t* p, Floats x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

#else

inline Integers load_bytes(const uint8_t* p) {
  Integers result;
  std::memcpy(result.v, p, sizeof result.v);
  return result;
}
inline Integers broadcast_integer(const int32_t* p) {
  Integers result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = *p;
  return result;
}
inline Integers dot(Integers sum, Integers weights, Integers activations) {
  uint8_t w[4 * kLanes];
  int8_t a[4 * kLanes];
  std::memcpy(w, weights.v, sizeof w), std::memcpy(a, activations.v, sizeof a);
  for (int i = 0; i < 4 * kLanes; ++i) sum.v[i / 4] += w[i] * a[i];
  return sum;
}
inline Floats to_floats(Integers x) { return each([&](int i) { return static_cast<float>(x.v[i]); }); }
inline void store_int8(int8_t* p, Floats x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(std::nearbyint(x.v[i]));
}

#endif

}  // namespace stoker
