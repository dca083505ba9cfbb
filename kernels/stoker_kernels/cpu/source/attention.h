// Paged attention of a mixed batch: every request's query rows, one or many, over its keys and values in the cache.
//
// One layer's cache: [blocks][kv heads][block_size / 16] groups of 16 tokens. A group is the keys [head_dim / 2][16][2], then the values
// [8][head_dim][2]: both products are the same loop over pairs, with tokens in the lanes for the scores and dimensions for the output.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "pool.h"
#include "tile.h"

namespace stoker {

constexpr int kGroupTokens = kLanes;
// Keys are taken in spans of this many, from the start of the sequence: a row's sums are made in the same order wherever its chunk begins.
constexpr int kSpanTokens = 128;
constexpr int kSpanGroups = kSpanTokens / kGroupTokens;
// The next groups whose addresses are known while a span is worked on.
constexpr int kGroupsAhead = 3;
// Up to so many rows a step waits for its keys and values; with more, for its products.
constexpr int kFewRows = 4;

struct AttentionShape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;    // a multiple of 16
  int64_t block_size;  // a multiple of 16
  float scale;
  float soft_cap;         // 0: none
  int64_t window;         // tokens that a row sees, itself included; 0: all
  const float* sinks;     // [num_heads] or null
};

// One step's requests. block_table: [requests, table_stride].
struct AttentionBatch {
  int64_t num_requests;
  const int64_t* query_start;       // [requests + 1]
  const int64_t* sequence_lengths;  // [requests]
  const int32_t* block_table;
  int64_t table_stride;
};

inline int64_t group_size(const AttentionShape& shape) { return 2 * kGroupTokens * shape.head_dim; }

inline const bf16* group_of(const bf16* cache, const AttentionShape& shape, const int32_t* blocks, int64_t kv_head, int64_t group) {
  const int64_t per_block = shape.block_size / kGroupTokens;
  const int64_t block = blocks[group / per_block];
  return cache + ((block * shape.num_kv_heads + kv_head) * per_block + group % per_block) * group_size(shape);
}

// Writes the key and the value of one token and head to its slot.
inline void write_slot(bf16* cache, const AttentionShape& shape, int64_t slot, int64_t kv_head, const bf16* key, const bf16* value) {
  const int64_t block = slot / shape.block_size, offset = slot % shape.block_size;
  const int64_t per_block = shape.block_size / kGroupTokens;
  bf16* group = cache + ((block * shape.num_kv_heads + kv_head) * per_block + offset / kGroupTokens) * group_size(shape);
  const int64_t lane = offset % kGroupTokens;
  auto* keys = reinterpret_cast<uint32_t*>(group) + lane;
  for (int64_t i = 0; i < shape.head_dim / 2; ++i) std::memcpy(keys + i * kGroupTokens, key + 2 * i, sizeof(uint32_t));
  bf16* values = group + kGroupTokens * shape.head_dim + lane / 2 * (2 * shape.head_dim) + lane % 2;
  for (int64_t d = 0; d < shape.head_dim; ++d) values[2 * d] = value[d];
}

// Some positions × heads of one request that attend together: at most kMaxRows rows.
struct AttentionItem {
  int64_t request;
  int64_t first_row;  // in the step
  int64_t num_rows;
  int64_t first_head;  // of all query heads
  int64_t num_heads;   // that share one key-value head
};

inline void make_items(const AttentionShape& shape, const AttentionBatch& batch, std::vector<AttentionItem>& items) {
  const int64_t per_kv_head = shape.num_heads / shape.num_kv_heads;
  const int64_t heads = std::min<int64_t>(per_kv_head, kMaxRows), rows = std::max<int64_t>(1, kMaxRows / heads);
  items.clear();
  for (int64_t request = 0; request < batch.num_requests; ++request)
    // The last rows have the most keys: they come first, so that no thread begins with them when the others are done.
    for (int64_t end = batch.query_start[request + 1]; end > batch.query_start[request]; end -= rows)
      for (int64_t head = 0; head < shape.num_heads; head += std::min(heads, per_kv_head - head % per_kv_head)) {
        const int64_t first = std::max(end - rows, batch.query_start[request]);
        items.push_back({request, first, end - first, head, std::min(heads, per_kv_head - head % per_kv_head)});
      }
}

// What attention keeps of an item's rows between spans of keys, and room for one span.
struct AttentionScratch {
  std::vector<bf16> query, probabilities, tail;
  std::vector<float> scores, sums;
  float maxima[kMaxRows], totals[kMaxRows];
  int64_t positions[kMaxRows];

  explicit AttentionScratch(int64_t head_dim)
      : query(kMaxRows * head_dim), probabilities(kMaxRows * kSpanTokens), tail(2 * kGroupTokens * head_dim), scores(kMaxRows * kSpanTokens),
        sums(kMaxRows * head_dim) {}
};

// This thread's scratch.
inline AttentionScratch& scratch_for(int64_t head_dim) {
  thread_local std::unique_ptr<AttentionScratch> scratch;
  if (!scratch || static_cast<int64_t>(scratch->sums.size()) < kMaxRows * head_dim) scratch = std::make_unique<AttentionScratch>(head_dim);
  return *scratch;
}

// Scores of all rows against the span's groups: scores [rows, 128]. groups: those of the span, then kGroupsAhead that are read next.
template <int rows>
inline void score_span(AttentionScratch& s, const AttentionShape& shape, const bf16* const* groups, int num_groups) {
  const auto* query = reinterpret_cast<const uint32_t*>(s.query.data());
  const int num_pairs = static_cast<int>(shape.head_dim / 2);
  for (int g = 0; g < num_groups; g += 2) {
    const auto* first = reinterpret_cast<const uint32_t*>(groups[g]);
    const auto* second = g + 1 < num_groups ? reinterpret_cast<const uint32_t*>(groups[g + 1]) : first;
    // The groups after these two come into the cache while the products of these are made: without it 22 GB/s were read, with it 29 of 35.
    const auto* next_first = reinterpret_cast<const uint32_t*>(groups[g + 2]);
    const auto* next_second = reinterpret_cast<const uint32_t*>(groups[g + 3]);
    Tile<rows, 2> tile;
    tile.clear();
    tile.add(query, num_pairs, num_pairs, [&](int i, Pairs(&column)[2]) {
      const ptrdiff_t key = i * kGroupTokens, value = (num_pairs + i) * kGroupTokens;
      column[0] = load_pairs(first + key);
      column[1] = load_pairs(second + key);
      if constexpr (rows <= kFewRows) {
        __builtin_prefetch(next_first + key, 0, 2);
        __builtin_prefetch(next_second + key, 0, 2);
        __builtin_prefetch(next_first + value, 0, 2);
        __builtin_prefetch(next_second + value, 0, 2);
      }
    });
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < 2; ++c) store(s.scores.data() + r * kSpanTokens + (g + c) * kGroupTokens, tile.sums[r][c]);
  }
}

// One row's probabilities of a span, relative to its largest score so far; what was summed before is scaled to that.
inline void normalize_span(AttentionScratch& s, const AttentionShape& shape, int row, int64_t first_key, int num_groups) {
  const float lowest = -INFINITY;
  float* scores = s.scores.data() + row * kSpanTokens;
  const int64_t position = s.positions[row];
  const int64_t end = std::min<int64_t>(position + 1 - first_key, num_groups * kGroupTokens);
  const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window - first_key) : 0;
  Floats largest_scores = broadcast(lowest);
  for (int g = 0; g < num_groups; ++g) {
    Floats x = load(scores + g * kGroupTokens) * broadcast(shape.scale);
    if (shape.soft_cap > 0.0f) {
      Floats e = exponential(minimum(broadcast(80.0f), x * broadcast(2.0f / shape.soft_cap)));
      x = (e - broadcast(1.0f)) / (e + broadcast(1.0f)) * broadcast(shape.soft_cap);
    }
    const int64_t lane = g * kGroupTokens;
    const int first = static_cast<int>(std::clamp<int64_t>(begin - lane, 0, kLanes)), last = static_cast<int>(std::clamp<int64_t>(end - lane, 0, kLanes));
    x = select_range(x, first, last, broadcast(lowest));
    store(scores + lane, x);
    largest_scores = maximum(largest_scores, x);
  }
  const float before = s.maxima[row], now = std::max(before, largest(largest_scores));
  bf16* probabilities = s.probabilities.data() + row * kSpanTokens;
  if (end <= begin) {
    std::memset(probabilities, 0, sizeof(bf16) * kSpanTokens);
    return;
  }
  Floats sum = zeros();
  for (int g = 0; g < num_groups; ++g) {
    Floats x = load(scores + g * kGroupTokens);
    Floats p = exponential(x - broadcast(now));
    const int64_t lane = g * kGroupTokens;
    const int first = static_cast<int>(std::clamp<int64_t>(begin - lane, 0, kLanes)), last = static_cast<int>(std::clamp<int64_t>(end - lane, 0, kLanes));
    p = select_range(p, first, last, zeros());
    sum = sum + p;
    store_bf16(probabilities + lane, p);
  }
  s.maxima[row] = now;
  if (now != before) {
    float lanes[kLanes];
    store(lanes, exponential(broadcast(before - now)));
    const float factor = before == lowest ? 0.0f : lanes[0];
    s.totals[row] *= factor;
    float* sums = s.sums.data() + row * shape.head_dim;
    for (int64_t d = 0; d < shape.head_dim; ++d) sums[d] *= factor;
  }
  s.totals[row] += total(sum);
}

// sums [rows, head_dim] += probabilities · values, `columns` · 16 dimensions from `first_dim` on.
template <int rows, int columns>
inline void add_values(AttentionScratch& s, const AttentionShape& shape, const bf16* const* groups, int num_groups, int64_t first_dim) {
  const auto* probabilities = reinterpret_cast<const uint32_t*>(s.probabilities.data());
  Tile<rows, columns> tile;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) tile.sums[r][c] = load(s.sums.data() + r * shape.head_dim + first_dim + c * kLanes);
  for (int g = 0; g < num_groups; ++g) {
    const auto* values = reinterpret_cast<const uint32_t*>(groups[g] + kGroupTokens * shape.head_dim) + first_dim;
    const uint32_t* b[columns];
    for (int c = 0; c < columns; ++c) b[c] = values + c * kLanes;
    const uint32_t* const(&columns_of)[columns] = b;
    tile.add(probabilities + g * (kGroupTokens / 2), kSpanTokens / 2, columns_of, shape.head_dim, kGroupTokens / 2);
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) store(s.sums.data() + r * shape.head_dim + first_dim + c * kLanes, tile.sums[r][c]);
}

// A copy of the last, partly filled group with zeros for the values of the tokens that are not there: another request's NaN times 0 is NaN.
inline const bf16* copy_tail(AttentionScratch& s, const AttentionShape& shape, const bf16* group, int64_t num_tokens) {
  std::memcpy(s.tail.data(), group, sizeof(bf16) * static_cast<size_t>(group_size(shape)));
  bf16* values = s.tail.data() + kGroupTokens * shape.head_dim;
  for (int64_t token = num_tokens; token < kGroupTokens; ++token)
    for (int64_t d = 0; d < shape.head_dim; ++d) values[token / 2 * (2 * shape.head_dim) + 2 * d + token % 2] = 0;
  return s.tail.data();
}

template <int rows>
inline void attend_rows(AttentionScratch& s, const AttentionShape& shape, const bf16* cache, const int32_t* blocks, int64_t kv_head) {
  int64_t last = 0, first = INT64_MAX;
  for (int r = 0; r < rows; ++r) last = std::max(last, s.positions[r]), first = std::min(first, s.positions[r]);
  const int64_t first_visible = shape.window > 0 ? std::max<int64_t>(0, first + 1 - shape.window) : 0;
  for (int64_t key = first_visible / kSpanTokens * kSpanTokens; key <= last; key += kSpanTokens) {
    const int num_groups = static_cast<int>(std::min<int64_t>(kSpanGroups, (last - key) / kGroupTokens + 1));
    const bf16* groups[kSpanGroups + kGroupsAhead];
    for (int g = 0; g < num_groups; ++g) {
      // Blocks before every row's window may be another request's by now: their scores are masked, so a group that is ours stands in for them.
      const int64_t group = std::max(key / kGroupTokens + g, first_visible / kGroupTokens);
      groups[g] = group_of(cache, shape, blocks, kv_head, group);
      const int64_t present = last + 1 - group * kGroupTokens;
      if (present < kGroupTokens) groups[g] = copy_tail(s, shape, groups[g], present);
    }
    for (int g = num_groups; g < num_groups + kGroupsAhead; ++g)
      groups[g] = group_of(cache, shape, blocks, kv_head, std::min(key / kGroupTokens + g, last / kGroupTokens));
    score_span<rows>(s, shape, groups, num_groups);
    for (int r = 0; r < rows; ++r) normalize_span(s, shape, r, key, num_groups);
    int64_t dim = 0;
    for (; dim + 2 * kLanes <= shape.head_dim; dim += 2 * kLanes) add_values<rows, 2>(s, shape, groups, num_groups, dim);
    if (dim < shape.head_dim) add_values<rows, 1>(s, shape, groups, num_groups, dim);
  }
}

// query, out: [rows of the step, num_heads, head_dim], a row `stride` elements from the next.
inline void attend(AttentionScratch& s, const AttentionShape& shape, const AttentionBatch& batch, const AttentionItem& item, const bf16* query,
                   int64_t query_stride, const bf16* cache, bf16* out, int64_t out_stride) {
  const int64_t dim = shape.head_dim, num_rows = item.num_rows * item.num_heads;
  const int64_t end = batch.query_start[item.request + 1], length = batch.sequence_lengths[item.request];
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t row = item.first_row + r / item.num_heads, head = item.first_head + r % item.num_heads;
    std::memcpy(s.query.data() + r * dim, query + row * query_stride + head * dim, sizeof(bf16) * static_cast<size_t>(dim));
    s.positions[r] = length - (end - row);
    s.maxima[r] = shape.sinks != nullptr ? shape.sinks[head] : -INFINITY;
    s.totals[r] = shape.sinks != nullptr ? 1.0f : 0.0f;
  }
  std::fill_n(s.sums.begin(), num_rows * dim, 0.0f);
  const int64_t kv_head = item.first_head / (shape.num_heads / shape.num_kv_heads);
  const int32_t* blocks = batch.block_table + item.request * batch.table_stride;
  with_rows(static_cast<int>(num_rows), [&](auto count) { attend_rows<decltype(count)::value>(s, shape, cache, blocks, kv_head); });
  for (int64_t r = 0; r < num_rows; ++r) {
    bf16* target = out + (item.first_row + r / item.num_heads) * out_stride + (item.first_head + r % item.num_heads) * dim;
    const Floats divisor = broadcast(s.totals[r]);
    for (int64_t d = 0; d < dim; d += kLanes) store_bf16(target + d, load(s.sums.data() + r * dim + d) / divisor);
  }
}

}  // namespace stoker
