// Sixteen lanes at a time, whatever the processor has: AVX-512 with bf16 products, AVX2 with fused multiply-add, or plain C++.
//
// Floats: 16 float32. Pairs: 16 lanes of two bf16 each, which dot() multiplies and adds to a float32 per lane.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace stoker {

using bf16 = uint16_t;
constexpr int kLanes = 16;

inline float to_float(bf16 value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Round to nearest, ties to even; NaN stays NaN.
inline bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<bf16>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

inline float round_to_bf16(float value) { return to_float(to_bf16(value)); }

#if defined(__AVX512BF16__)

constexpr const char* kInstructionSet = "avx512_bf16";
constexpr int kMaxRows = 12;  // 24 of the 32 registers are accumulators

struct Floats { __m512 v; };
struct Pairs { __m512i v; };

inline Floats zeros() { return {_mm512_setzero_ps()}; }
inline Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x.v); }
inline Pairs load_pairs(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline Pairs broadcast_pair(const uint32_t* p) { return {_mm512_set1_epi32(static_cast<int>(*p))}; }
inline Floats dot(Floats sum, Pairs a, Pairs b) { return {_mm512_dpbf16_ps(sum.v, (__m512bh)a.v, (__m512bh)b.v)}; }
inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats maximum(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats minimum(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Floats nearest(Floats a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Floats times_power_of_two(Floats a, Floats exponent) { return {_mm512_scalef_ps(a.v, exponent.v)}; }
inline Floats load_bf16(const bf16* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
inline void store_bf16(bf16* p, Floats x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v)); }
inline Floats rounded_to_bf16(Floats x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x.v)), 16))};
}
inline float largest(Floats x) { return _mm512_reduce_max_ps(x.v); }
inline float total(Floats x) { return _mm512_reduce_add_ps(x.v); }
// Bit i is set where lane i of x is at least that of `bound`.
inline uint32_t lanes_at_least(Floats x, Floats bound) { return _mm512_cmp_ps_mask(x.v, bound.v, _CMP_GE_OQ); }
// The lanes of `lanes`, 0 in the others.
inline Floats only(uint32_t lanes, Floats x) { return {_mm512_maskz_mov_ps(static_cast<__mmask16>(lanes), x.v)}; }
// Writes the lanes of `lanes` side by side, and their numbers from `first` on; up to 16 of each are overwritten. Compressing into memory would be slow.
inline void store_lanes(uint32_t lanes, Floats x, int32_t first, float* values, int32_t* numbers) {
  const __m512i all = _mm512_add_epi32(_mm512_set1_epi32(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(static_cast<__mmask16>(lanes), x.v));
  _mm512_storeu_si512(numbers, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), all));
}
// Lanes first..end-1 of x, the others from `other`.
inline Floats select_range(Floats x, int first, int end, Floats other) {
  uint32_t mask = ((1u << end) - 1) & ~((1u << first) - 1);
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), other.v, x.v)};
}

#elif defined(__AVX2__)

constexpr const char* kInstructionSet = "avx2";
constexpr int kMaxRows = 3;  // 12 of the 16 registers are accumulators

struct Floats { __m256 low, high; };
struct Pairs { __m256i low, high; };

inline Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats x) { _mm256_storeu_ps(p, x.low), _mm256_storeu_ps(p + 8, x.high); }
inline Pairs load_pairs(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline Pairs broadcast_pair(const uint32_t* p) {
  __m256i both = _mm256_set1_epi32(static_cast<int>(*p));
  return {both, both};
}
inline __m256 first_of_pairs(__m256i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
inline __m256 second_of_pairs(__m256i x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))); }
inline __m256 dot(__m256 sum, __m256i a, __m256i b) {
  sum = _mm256_fmadd_ps(second_of_pairs(a), second_of_pairs(b), sum);
  return _mm256_fmadd_ps(first_of_pairs(a), first_of_pairs(b), sum);
}
inline Floats dot(Floats sum, Pairs a, Pairs b) { return {dot(sum.low, a.low, b.low), dot(sum.high, a.high, b.high)}; }
inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)}; }
inline Floats maximum(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats minimum(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats nearest(Floats a) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, mode), _mm256_round_ps(a.high, mode)};
}
inline __m256 times_power_of_two(__m256 a, __m256 exponent) {
  __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(a, _mm256_castsi256_ps(bits));
}
inline Floats times_power_of_two(Floats a, Floats exponent) { return {times_power_of_two(a.low, exponent.low), times_power_of_two(a.high, exponent.high)}; }
inline __m256 load_half_bf16(const bf16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline Floats load_bf16(const bf16* p) { return {load_half_bf16(p), load_half_bf16(p + 8)}; }
inline __m256i rounded_bits(__m256 x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline Floats rounded_to_bf16(Floats x) {
  __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(rounded_bits(x.low), mask)), _mm256_castsi256_ps(_mm256_and_si256(rounded_bits(x.high), mask))};
}
inline void store_bf16(bf16* p, Floats x) {
  __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(rounded_bits(x.low), 16), _mm256_srli_epi32(rounded_bits(x.high), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline float largest(Floats x) {
  float lanes[8];
  _mm256_storeu_ps(lanes, _mm256_max_ps(x.low, x.high));
  float result = lanes[0];
  for (int i = 1; i < 8; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}
inline float total(Floats x) {
  float lanes[8];
  _mm256_storeu_ps(lanes, _mm256_add_ps(x.low, x.high));
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}
inline uint32_t lanes_at_least(Floats x, Floats bound) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.low, bound.low, _CMP_GE_OQ)), high = _mm256_movemask_ps(_mm256_cmp_ps(x.high, bound.high, _CMP_GE_OQ));
  return static_cast<uint32_t>(low | high << 8);
}
inline Floats only(uint32_t lanes, Floats x) {
  const __m256i bits = _mm256_set1_epi32(static_cast<int>(lanes));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), high = _mm256_slli_epi32(low, 8);
  auto half = [&](__m256 values, __m256i bit) { return _mm256_and_ps(values, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit))); };
  return {half(x.low, low), half(x.high, high)};
}
inline void store_lanes(uint32_t lanes, Floats x, int32_t first, float* values, int32_t* numbers) {
  float all[kLanes];
  store(all, x);
  for (; lanes; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    *values++ = all[lane], *numbers++ = first + lane;
  }
}
inline Floats select_range(Floats x, int first, int end, Floats other) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  auto half = [&](__m256 a, __m256 b, int offset) {
    __m256i index = _mm256_add_epi32(lane, _mm256_set1_epi32(offset));
    __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), index), _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index));
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(inside));
  };
  return {half(x.low, other.low, 0), half(x.high, other.high, 8)};
}

#else

constexpr const char* kInstructionSet = "generic";
constexpr int kMaxRows = 2;

struct Floats { float v[kLanes]; };
struct Pairs { uint32_t v[kLanes]; };

template <typename F>
inline Floats each(F f) {
  Floats result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = f(i);
  return result;
}
inline Floats broadcast(float x) { return each([=](int) { return x; }); }
inline Floats zeros() { return broadcast(0.0f); }
inline Floats load(const float* p) { return each([=](int i) { return p[i]; }); }
inline void store(float* p, Floats x) { std::memcpy(p, x.v, sizeof x.v); }
inline Pairs load_pairs(const uint32_t* p) {
  Pairs result;
  std::memcpy(result.v, p, sizeof result.v);
  return result;
}
inline Pairs broadcast_pair(const uint32_t* p) {
  Pairs result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = *p;
  return result;
}
inline float half_of(uint32_t bits) {
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
inline Floats dot(Floats sum, Pairs a, Pairs b) {
  return each([&](int i) {
    float with_second = sum.v[i] + half_of(a.v[i] & 0xffff0000u) * half_of(b.v[i] & 0xffff0000u);
    return with_second + half_of(a.v[i] << 16) * half_of(b.v[i] << 16);
  });
}
inline Floats operator+(Floats a, Floats b) { return each([&](int i) { return a.v[i] + b.v[i]; }); }
inline Floats operator-(Floats a, Floats b) { return each([&](int i) { return a.v[i] - b.v[i]; }); }
inline Floats operator*(Floats a, Floats b) { return each([&](int i) { return a.v[i] * b.v[i]; }); }
inline Floats operator/(Floats a, Floats b) { return each([&](int i) { return a.v[i] / b.v[i]; }); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
inline Floats maximum(Floats a, Floats b) { return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline Floats minimum(Floats a, Floats b) { return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline Floats nearest(Floats a) { return each([&](int i) { return std::nearbyint(a.v[i]); }); }
inline Floats times_power_of_two(Floats a, Floats exponent) { return each([&](int i) { return std::ldexp(a.v[i], static_cast<int>(exponent.v[i])); }); }
inline Floats load_bf16(const bf16* p) { return each([=](int i) { return to_float(p[i]); }); }
inline Floats rounded_to_bf16(Floats x) { return each([&](int i) { return round_to_bf16(x.v[i]); }); }
inline void store_bf16(bf16* p, Floats x) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_bf16(x.v[i]);
}
inline float largest(Floats x) {
  float result = x.v[0];
  for (int i = 1; i < kLanes; ++i) result = x.v[i] > result ? x.v[i] : result;
  return result;
}
inline float total(Floats x) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x.v[i] += x.v[i + width];
  return x.v[0];
}
inline uint32_t lanes_at_least(Floats x, Floats bound) {
  uint32_t lanes = 0;
  for (int i = 0; i < kLanes; ++i) lanes |= static_cast<uint32_t>(x.v[i] >= bound.v[i]) << i;
  return lanes;
}
inline Floats only(uint32_t lanes, Floats x) {
  return each([&](int i) { return lanes >> i & 1 ? x.v[i] : 0.0f; });
}
inline void store_lanes(uint32_t lanes, Floats x, int32_t first, float* values, int32_t* numbers) {
  float all[kLanes];
  store(all, x);
  for (; lanes; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    *values++ = all[lane], *numbers++ = first + lane;
  }
}
inline Floats select_range(Floats x, int first, int end, Floats other) {
  return each([&](int i) { return i >= first && i < end ? x.v[i] : other.v[i]; });
}

#endif

// e^x to 2 units in the last place: e^x = 2^n · e^r with |r| ≤ ln 2 / 2, e^r by its Taylor polynomial. x is taken as -87.3 to 88; NaN stays NaN, for
// maximum and minimum return their second argument where one is NaN.
inline Floats exponential(Floats x) {
  Floats clamped = maximum(broadcast(-87.3f), minimum(broadcast(88.0f), x));
  Floats n = nearest(clamped * broadcast(1.44269504f));
  Floats r = multiply_add(n, broadcast(-0.693359375f), clamped);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.0f / 720.0f);
  p = multiply_add(p, r, broadcast(1.0f / 120.0f));
  p = multiply_add(p, r, broadcast(1.0f / 24.0f));
  p = multiply_add(p, r, broadcast(1.0f / 6.0f));
  p = multiply_add(p, r, broadcast(0.5f));
  p = multiply_add(p, r, broadcast(1.0f));
  p = multiply_add(p, r, broadcast(1.0f));
  return times_power_of_two(p, n);
}

inline Floats silu(Floats x) { return x / (broadcast(1.0f) + exponential(zeros() - x)); }

}  // namespace stoker
