// From logits to a token: the largest one, or a draw after temperature, min_p, top_k and top_p. A row's token depends on that row alone.
//
// The rules and the noise are those of reference/sampling.py. A vocabulary is never sorted: one pass finds the few tokens that can be kept, bisection a
// narrow range of logits in which top_p ends, and only that range is sorted.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "simd.h"

namespace stoker {

constexpr int64_t kRaceBlock = 256;  // tokens: what nothing is cut from races among blocks, then inside the winner
constexpr int64_t kMaximaBlock = 64;
constexpr float kNever = -700.0f;  // a logit so far below the largest is no candidate
constexpr int kBisections = 10;  // of a range of some 15 units: what is left has few tokens
constexpr size_t kFewTokens = 48;  // are sorted as they are

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
  std::vector<int32_t> range;

  void reserve(int64_t vocabulary) {
    size_t padded = static_cast<size_t>((vocabulary + kRaceBlock - 1) / kRaceBlock * kRaceBlock);
    if (scaled.size() == padded) return;
    const size_t with_slack = padded + kLanes;  // vectors are written whole
    scaled.resize(padded), sorted.resize(padded), range.resize(padded), values.resize(with_slack), weights.resize(with_slack), token_ids.resize(with_slack);
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

// What lies past the candidates is never at least anything.
inline void end_candidates(size_t number, SamplingScratch& s) { store(s.values.data() + number, broadcast(-std::numeric_limits<float>::infinity())); }

// Collects the tokens whose scaled logits reach `bound`, and returns their number.
inline size_t find_candidates(float bound, SamplingScratch& s) {
  const Floats bounds = broadcast(bound);
  size_t number = 0;
  for (size_t block = 0; block < s.maxima.size(); ++block) {
    if (s.maxima[block] < bound) continue;
    for (size_t i = block * kMaximaBlock; i < (block + 1) * kMaximaBlock; i += kLanes) {
      const Floats x = load(s.scaled.data() + i);
      const uint32_t lanes = lanes_at_least(x, bounds);
      store_lanes(lanes, x, static_cast<int32_t>(i), s.values.data() + number, s.token_ids.data() + number);
      number += static_cast<size_t>(__builtin_popcount(lanes));
    }
  }
  end_candidates(number, s);
  return number;
}

// Keeps the candidates of at least `bound`, in their order.
inline size_t keep_at_least(float bound, size_t number, SamplingScratch& s) {
  size_t kept = 0;
  for (size_t i = 0; i < number; ++i) {
    if (s.values[i] < bound) continue;
    s.values[kept] = s.values[i], s.token_ids[kept++] = s.token_ids[i];
  }
  end_candidates(kept, s);
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

// What the candidates of at least `bound` weigh.
inline double weight_at_least(float bound, size_t number, const SamplingScratch& s) {
  constexpr size_t part = 16 * kLanes;  // summed in float32
  const Floats bounds = broadcast(bound);
  double weight = 0.0;
  for (size_t begin = 0; begin < number; begin += part) {
    Floats sums = zeros();
    for (size_t i = begin; i < std::min(begin + part, number); i += kLanes) {
      sums = sums + only(lanes_at_least(load(s.values.data() + i), bounds), load(s.weights.data() + i));
    }
    weight += total(sums);
  }
  return weight;
}

// Where a row's tokens end: those above `value` are kept, and of those equal to it the candidates up to the place `last`.
struct Cut {
  float value;
  size_t last;

  bool keeps(size_t place, float x) const { return x > value || (x == value && place <= last); }
};

// Keeps a candidate if those before it, by descending logit, then ascending token id, weigh less than `target`. lowest: no candidate is below it.
inline Cut cut_nucleus(double target, float lowest, size_t number, SamplingScratch& s) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  // Surely too much from `low` on, surely too little from `high` on; rounding decides nothing.
  float low = -infinity, high = infinity;
  double before = 0.0;
  if (number > kFewTokens) {
    float from = lowest, to = 0.0f;
    for (int i = 0; i < kBisections; ++i) {
      const float middle = 0.5f * (from + to);
      const double weight = weight_at_least(middle, number, s);
      if (weight > target * (1.0 + 1e-6)) {
        low = from = middle;
      } else {
        to = middle;
        if (weight < target * (1.0 - 1e-6)) high = middle, before = weight;
      }
    }
  }
  size_t in_range = 0;
  for (size_t i = 0; i < number; i += kLanes) {
    const Floats x = load(s.values.data() + i);
    for (uint32_t lanes = lanes_at_least(x, broadcast(low)) & ~lanes_at_least(x, broadcast(high)); lanes; lanes &= lanes - 1) {
      const size_t place = i + static_cast<size_t>(__builtin_ctz(lanes));
      if (place < number) s.range[in_range++] = static_cast<int32_t>(place);
    }
  }
  auto comes_first = [&](int32_t a, int32_t b) {
    const float x = s.values[static_cast<size_t>(a)], y = s.values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::sort(s.range.begin(), s.range.begin() + static_cast<ptrdiff_t>(in_range), comes_first);
  size_t kept = 0;
  for (; kept < in_range && before < target; ++kept) before += s.weights[static_cast<size_t>(s.range[kept])];
  if (kept == 0) return {high, number};
  const size_t last = static_cast<size_t>(s.range[kept - 1]);
  return {s.values[last], last};
}

inline void weigh_candidates(size_t number, SamplingScratch& s) {
  for (size_t i = 0; i < number; i += kLanes) store(s.weights.data() + i, exponential(load(s.values.data() + i)));
}

// The candidates of one row, and which of them are kept.
struct Survivors {
  size_t number;
  Cut cut;
};

// What min_p, top_k and top_p leave.
inline Survivors find_survivors(const SamplingRow& row, int64_t vocabulary, double sum, SamplingScratch& s) {
  if (!row.cuts_first()) {
    // Tokens below this weigh less than 1 - top_p together. The margin covers rounding.
    const double nucleus = std::log((1.0 - row.top_p) / static_cast<double>(vocabulary) * sum) - 1e-3;
    const float lowest = std::max(kNever, std::min(static_cast<float>(nucleus), 0.0f));
    const size_t number = find_candidates(lowest, s);
    weigh_candidates(number, s);
    return {number, cut_nucleus(row.top_p * sum, lowest, number, s)};
  }
  float lowest = std::max(kNever, row.log_min_p);
  if (row.top_k > 0) lowest = std::max(lowest, top_k_bound(row.top_k, s));
  size_t number = find_candidates(lowest, s);
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(number)) {
    lowest = kth_largest(row.top_k, number, s);
    number = keep_at_least(lowest, number, s);
  }
  weigh_candidates(number, s);
  if (row.top_p >= 1.0) return {number, {lowest, number}};
  return {number, cut_nucleus(row.top_p * weight_at_least(lowest, number, s), lowest, number, s)};
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
  const Survivors survivors = find_survivors(row, vocabulary, sum, s);
  const Floats bounds = broadcast(survivors.cut.value);
  Race race{key};
  for (size_t i = 0; i < survivors.number; i += kLanes) {
    for (uint32_t lanes = lanes_at_least(load(s.values.data() + i), bounds); lanes; lanes &= lanes - 1) {
      const size_t place = i + static_cast<size_t>(__builtin_ctz(lanes));
      if (survivors.cut.keeps(place, s.values[place])) race.enter(s.token_ids[place], s.token_ids[place], s.weights[place]);
    }
  }
  return race.winner;
}

// The token of one row, and the largest of its logits: where that is not finite, the token means nothing.
inline Largest sample(const float* logits, int64_t vocabulary, const SamplingRow& row, int64_t position) {
  Largest found = find_largest(logits, vocabulary);
  if (row.temperature > 0.0f && std::isfinite(found.value)) found.token_id = draw(logits, vocabulary, found.value, row, position);
  return found;
}

}  // namespace stoker
