// From logits to a token: the largest one, or a draw after temperature, min_p, top_k and top_p. A row's token depends on that row alone.
//
// The rules and the noise are those of reference/sampling.py. A vocabulary is never sorted: one pass finds the few tokens that can be kept, a histogram of
// their logits the bin in which top_p ends, and only that bin is sorted.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "simd.h"

namespace stoker {

constexpr int64_t kRaceBlock = 256;  // tokens: what nothing is cut from races among blocks, then inside the winner
constexpr int64_t kMaximaBlock = 64;
constexpr float kNever = -700.0f;  // a logit so far below the largest is no candidate
constexpr int kBinsPerUnit = 16;
constexpr int kNumBins = 512;

// How a row is sampled. Off are: a temperature of 0 (greedy), top_p 1, top_k 0, log_min_p -infinity.
struct SamplingRow {
  uint64_t request_key;
  double top_p;
  int64_t top_k;
  float temperature;
  float log_min_p;

  bool cuts_first() const { return top_k > 0 || log_min_p > -std::numeric_limits<float>::infinity(); }
};

struct Largest {
  float value;  // NaN where there is one in the row
  int64_t token_id;
};

// SplitMix64: one stream for each request and position, in which the token id is the counter.
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline uint64_t stream(uint64_t key, int64_t counter) { return mix_bits(key + (static_cast<uint64_t>(counter) + 1) * 0x9E3779B97F4A7C15u); }

// Who wins a race of weight ÷ Exp(1) noise; the first among equals.
struct Race {
  uint64_t key;
  double best = -1.0;
  int64_t winner = 0;

  void enter(int64_t id, int64_t counter, double weight) {
    const double uniform = (static_cast<double>(stream(key, counter) >> 12) + 0.5) * 0x1p-52;
    // The noise is -log(uniform), never less than 1 - uniform: few need the logarithm. The factor covers rounding.
    if (weight < best * (1.0 - uniform) * (1.0 - 1e-9)) return;
    const double score = weight / -std::log(uniform);
    if (score > best) best = score, winner = id;
  }
};

// What is left of one row while it is sampled: one for each thread, kept from step to step.
struct SamplingScratch {
  std::vector<float> scaled;   // [vocabulary, padded]: (logit - largest) / temperature, 0 at most
  std::vector<float> maxima;   // of each block of 64
  std::vector<double> sums;    // of the weights of each block of 256
  std::vector<float> values;   // candidates by ascending token id: scaled logit, weight, token id
  std::vector<float> weights;
  std::vector<int32_t> token_ids;
  std::vector<float> sorted;
  std::vector<int32_t> last_bin;
  double bins[kNumBins];

  void reserve(int64_t vocabulary) {
    size_t padded = static_cast<size_t>((vocabulary + kRaceBlock - 1) / kRaceBlock * kRaceBlock);
    if (scaled.size() == padded) return;
    scaled.resize(padded), values.resize(padded), weights.resize(padded), token_ids.resize(padded), sorted.resize(padded), last_bin.resize(padded);
    maxima.resize(padded / kMaximaBlock), sums.resize(padded / kRaceBlock);
  }
};

inline SamplingScratch& sampling_scratch() {
  static thread_local SamplingScratch scratch;
  return scratch;
}

// Lanes from `size` on are -infinity.
inline Floats load_some(const float* p, int64_t size) {
  if (size >= kLanes) return load(p);
  float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < size ? p[i] : -std::numeric_limits<float>::infinity();
  return load(lanes);
}

inline Largest find_largest(const float* logits, int64_t vocabulary) {
  constexpr int64_t block = 1024;
  const Floats lowest = broadcast(-std::numeric_limits<float>::infinity());
  Largest found{-std::numeric_limits<float>::infinity(), 0};
  int64_t best_block = 0;
  Floats suspicious = zeros();  // x - x is 0, but for infinities and NaN
  for (int64_t begin = 0; begin < vocabulary; begin += block) {
    const int64_t end = std::min(begin + block, vocabulary);
    Floats top = lowest;
    for (int64_t i = begin; i < end; i += kLanes) {
      Floats x = load_some(logits + i, end - i);
      top = maximum(x, top);
      suspicious = suspicious + (x - x);
    }
    float value = largest(top);
    if (value > found.value) found.value = value, best_block = begin;
  }
  // Padding and masks are -infinity, so that a sum is often NaN where no logit is.
  if (total(suspicious) != 0.0f) {
    bool has_nan = false;
    for (int64_t i = 0; i < vocabulary; ++i) has_nan |= logits[i] != logits[i];
    if (has_nan) return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  found.token_id = best_block;
  while (logits[found.token_id] != found.value) ++found.token_id;
  return found;
}

// Fills `scaled` and the maxima of its blocks and, where it `weighs`, the sums of their weights; returns the sum of all.
template <bool weighs>
inline double scale(const float* logits, int64_t vocabulary, float top, float temperature, SamplingScratch& s) {
  const Floats tops = broadcast(top), temperatures = broadcast(temperature);
  double sum = 0.0;
  for (size_t race = 0; race < s.sums.size(); ++race) {
    Floats weights = zeros();
    for (int64_t part = 0; part < kRaceBlock / kMaximaBlock; ++part) {
      const int64_t begin = static_cast<int64_t>(race) * kRaceBlock + part * kMaximaBlock;
      Floats maxima = broadcast(-std::numeric_limits<float>::infinity());
      for (int64_t i = begin; i < begin + kMaximaBlock; i += kLanes) {
        Floats x = (load_some(logits + i, vocabulary - i) - tops) / temperatures;
        store(s.scaled.data() + i, x);
        maxima = maximum(x, maxima);
        if constexpr (weighs) weights = weights + exponential(x);
      }
      s.maxima[static_cast<size_t>(begin / kMaximaBlock)] = largest(maxima);
    }
    s.sums[race] = total(weights);
    sum += s.sums[race];
  }
  return sum;
}

// Collects the tokens whose scaled logits reach `bound`, and returns their number.
inline size_t find_candidates(float bound, SamplingScratch& s) {
  const Floats bounds = broadcast(bound);
  size_t number = 0;
  for (size_t block = 0; block < s.maxima.size(); ++block) {
    if (s.maxima[block] < bound) continue;
    for (size_t i = block * kMaximaBlock; i < (block + 1) * kMaximaBlock; i += kLanes) {
      for (uint32_t lanes = lanes_at_least(load(s.scaled.data() + i), bounds); lanes; lanes &= lanes - 1) {
        const size_t token_id = i + static_cast<size_t>(__builtin_ctz(lanes));
        s.values[number] = s.scaled[token_id];
        s.token_ids[number++] = static_cast<int32_t>(token_id);
      }
    }
  }
  return number;
}

// Keeps the candidates that `keeps` says, given their places, in their order.
template <typename Keeps>
inline size_t keep_candidates(size_t number, SamplingScratch& s, Keeps keeps) {
  size_t kept = 0;
  for (size_t i = 0; i < number; ++i) {
    if (!keeps(i)) continue;
    s.values[kept] = s.values[i], s.weights[kept] = s.weights[i], s.token_ids[kept] = s.token_ids[i];
    ++kept;
  }
  return kept;
}

// The k-th largest candidate, or the smallest where there are fewer.
inline float kth_largest(int64_t k, size_t number, SamplingScratch& s) {
  std::copy_n(s.values.begin(), number, s.sorted.begin());
  auto kth = s.sorted.begin() + (std::min<int64_t>(k, static_cast<int64_t>(number)) - 1);
  std::nth_element(s.sorted.begin(), kth, s.sorted.begin() + static_cast<ptrdiff_t>(number), std::greater<float>());
  return *kth;
}

// No smaller than this is the k-th largest logit: k blocks have a maximum that large.
inline float top_k_bound(int64_t k, SamplingScratch& s) {
  if (k > static_cast<int64_t>(s.maxima.size())) return kNever;
  std::copy(s.maxima.begin(), s.maxima.end(), s.sorted.begin());
  auto end = s.sorted.begin() + static_cast<ptrdiff_t>(s.maxima.size());
  std::nth_element(s.sorted.begin(), s.sorted.begin() + (k - 1), end, std::greater<float>());
  return s.sorted[static_cast<size_t>(k - 1)];
}

inline int bin_of(float value) { return static_cast<int>(std::min(-value * kBinsPerUnit, static_cast<float>(kNumBins - 1))); }

// Keeps a candidate if those before it, by descending logit, then ascending token id, weigh less than `target`.
inline size_t cut_nucleus(double target, size_t number, SamplingScratch& s) {
  std::fill_n(s.bins, kNumBins, 0.0);
  for (size_t i = 0; i < number; ++i) s.bins[bin_of(s.values[i])] += s.weights[i];
  double before = 0.0;
  int last = 0;
  while (last < kNumBins - 1 && before + s.bins[last] < target) before += s.bins[last++];
  size_t in_bin = 0;
  for (size_t i = 0; i < number; ++i) {
    if (bin_of(s.values[i]) == last) s.last_bin[in_bin++] = static_cast<int32_t>(i);
  }
  auto comes_first = [&](int32_t a, int32_t b) {
    const float x = s.values[static_cast<size_t>(a)], y = s.values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::sort(s.last_bin.begin(), s.last_bin.begin() + static_cast<ptrdiff_t>(in_bin), comes_first);
  size_t kept_in_bin = 0;
  for (; kept_in_bin < in_bin && before < target; ++kept_in_bin) before += s.weights[static_cast<size_t>(s.last_bin[kept_in_bin])];
  if (kept_in_bin == 0) return keep_candidates(number, s, [&](size_t i) { return bin_of(s.values[i]) < last; });
  const int32_t end = s.last_bin[kept_in_bin - 1];
  // keep_candidates() moves what it has passed: the last one kept is remembered by value.
  const float value = s.values[static_cast<size_t>(end)];
  return keep_candidates(number, s, [&](size_t i) { return s.values[i] > value || (s.values[i] == value && static_cast<int32_t>(i) <= end); });
}

inline void weigh_candidates(size_t number, SamplingScratch& s) {
  for (size_t i = 0; i < number; i += kLanes) store(s.weights.data() + i, exponential(load(s.values.data() + i)));
}

// The tokens that min_p, top_k and top_p leave: their number.
inline size_t survivors(const SamplingRow& row, int64_t vocabulary, double sum, SamplingScratch& s) {
  if (!row.cuts_first()) {
    // Tokens below this weigh less than 1 - top_p together. The margin covers rounding.
    const double nucleus = std::log((1.0 - row.top_p) / static_cast<double>(vocabulary) * sum) - 1e-3;
    const size_t number = find_candidates(std::max(kNever, std::min(static_cast<float>(nucleus), 0.0f)), s);
    weigh_candidates(number, s);
    return cut_nucleus(row.top_p * sum, number, s);
  }
  float bound = std::max(kNever, row.log_min_p);
  if (row.top_k > 0) bound = std::max(bound, top_k_bound(row.top_k, s));
  size_t number = find_candidates(bound, s);
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(number)) {
    const float kth = kth_largest(row.top_k, number, s);
    number = keep_candidates(number, s, [&](size_t i) { return s.values[i] >= kth; });
  }
  weigh_candidates(number, s);
  if (row.top_p >= 1.0) return number;
  double left = 0.0;
  for (size_t i = 0; i < number; ++i) left += s.weights[i];
  return cut_nucleus(row.top_p * left, number, s);
}

inline int64_t race_of_blocks(uint64_t key, SamplingScratch& s) {
  Race blocks{key};
  for (size_t block = 0; block < s.sums.size(); ++block) blocks.enter(static_cast<int64_t>(block), -1 - static_cast<int64_t>(block), s.sums[block]);
  const int64_t begin = blocks.winner * kRaceBlock;
  for (int64_t i = 0; i < kRaceBlock; i += kLanes) store(s.weights.data() + i, exponential(load(s.scaled.data() + begin + i)));
  Race tokens{key};
  for (int64_t i = 0; i < kRaceBlock; ++i) tokens.enter(begin + i, begin + i, s.weights[static_cast<size_t>(i)]);
  return tokens.winner;
}

// position: the token's index in its request.
inline int64_t draw(const float* logits, int64_t vocabulary, float top, const SamplingRow& row, int64_t position) {
  SamplingScratch& s = sampling_scratch();
  s.reserve(vocabulary);
  const double sum = row.cuts_first() ? scale<false>(logits, vocabulary, top, row.temperature, s) : scale<true>(logits, vocabulary, top, row.temperature, s);
  const uint64_t key = stream(row.request_key, position);
  if (row.top_p >= 1.0 && !row.cuts_first()) return race_of_blocks(key, s);
  const size_t number = survivors(row, vocabulary, sum, s);
  Race race{key};
  for (size_t i = 0; i < number; ++i) race.enter(s.token_ids[i], s.token_ids[i], s.weights[i]);
  return race.winner;
}

// The token of one row, and the largest of its logits: where that is not finite, the token means nothing.
inline Largest sample(const float* logits, int64_t vocabulary, const SamplingRow& row, int64_t position) {
  Largest found = find_largest(logits, vocabulary);
  if (row.temperature > 0.0f && std::isfinite(found.value)) found.token_id = draw(logits, vocabulary, found.value, row, position);
  return found;
}

}  // namespace stoker
