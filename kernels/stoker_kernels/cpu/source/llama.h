// A whole step of a Llama-like decoder: one call, one parallel region, the threads waiting for each other between phases.
#pragma once

#include "attention.h"
#include "linear.h"
#include "rows.h"

namespace stoker {

struct Layer {
  const bf16* input_norm;
  Matrix qkv;
  Matrix attention_output;
  const bf16* mlp_norm;
  Matrix gate_up;  // interleaved
  Matrix down;
  AttentionShape attention;
};

struct Model {
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t rotary_half;
  int64_t num_layers;
  const Layer* layers;
  const bf16* embedding;  // [vocabulary, hidden]
  const bf16* final_norm;
  const bf16* cos_sin;  // [positions, 2, rotary_half]
  float epsilon;
};

// The arrays of one step of `num_tokens` tokens. caches: one for each layer.
struct Step {
  int64_t num_tokens;
  const int64_t* input_ids;
  const int64_t* positions;
  const int64_t* slots;
  AttentionBatch requests;
  bf16* const* caches;
  bf16* hidden;  // [num_tokens, hidden_size]: what comes out, normalized
};

// Activations between phases, for steps of up to `capacity` tokens.
struct Workspace {
  int64_t capacity = 0;
  std::unique_ptr<bf16[]> residual, qkv, attended, activated;
  QuantizedRows quantized;
  std::vector<AttentionItem> items;

  void reserve(const Model& model, int64_t num_tokens) {
    if (num_tokens <= capacity) return;
    const AttentionShape& shape = model.layers[0].attention;
    capacity = std::max(num_tokens, std::min<int64_t>(2 * capacity, 1024));
    auto allocate = [&](int64_t width) { return std::unique_ptr<bf16[]>(new bf16[static_cast<size_t>(capacity * width)]); };
    residual = allocate(model.hidden_size);
    qkv = allocate((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim);
    attended = allocate(shape.num_heads * shape.head_dim);
    activated = allocate(model.intermediate_size);
    if (model.layers[0].qkv.format == Format::kInt8Dot)
      quantized.reserve(capacity, std::max({model.hidden_size, shape.num_heads * shape.head_dim, model.intermediate_size}));
  }
};

// Rotates a token's query and key heads and writes its keys and values to the cache; a negative slot takes nothing. qkv: query | key | value heads.
inline void rotate_and_cache(bf16* qkv, const AttentionShape& shape, const bf16* cos_sin, int64_t half, int64_t slot, bf16* cache) {
  for (int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) rotate(qkv + head * shape.head_dim, cos_sin, cos_sin + half, half);
  if (slot < 0) return;
  const bf16* keys = qkv + shape.num_heads * shape.head_dim;
  const bf16* values = keys + shape.num_kv_heads * shape.head_dim;
  for (int64_t head = 0; head < shape.num_kv_heads; ++head) write_slot(cache, shape, slot, head, keys + head * shape.head_dim, values + head * shape.head_dim);
}

inline void run_layer(Worker& worker, const Model& model, int64_t index, const Step& step, Workspace& w) {
  const Layer& layer = model.layers[index];
  const AttentionShape& shape = layer.attention;
  const int64_t tokens = step.num_tokens, hidden = model.hidden_size;
  const int64_t query_width = shape.num_heads * shape.head_dim, qkv_width = query_width + 2 * shape.num_kv_heads * shape.head_dim;
  bf16* const cache = step.caches[index];
  const auto each_token = [&](auto body) {
    worker.share_evenly(static_cast<int>(tokens), body);
    worker.wait_for_all();
  };

  linear(worker, {step.hidden, hidden, tokens, w.quantized}, layer.qkv, StoreRounded{w.qkv.get(), qkv_width, qkv_width});
  worker.wait_for_all();
  each_token([&](int t) {
    const bf16* cos_sin = model.cos_sin + step.positions[t] * 2 * model.rotary_half;
    rotate_and_cache(w.qkv.get() + t * qkv_width, shape, cos_sin, model.rotary_half, step.slots[t], cache);
  });
  worker.share(static_cast<int>(w.items.size()), 1, [&](int i) {
    attend(scratch_for(shape.head_dim), shape, step.requests, w.items[i], w.qkv.get(), qkv_width, cache, w.attended.get(), query_width);
  });
  worker.wait_for_all();
  linear(worker, {w.attended.get(), query_width, tokens, w.quantized}, layer.attention_output, AddToResidual{w.residual.get(), hidden, hidden});
  worker.wait_for_all();
  each_token([&](int t) { rms_norm(w.residual.get() + t * hidden, layer.mlp_norm, hidden, model.epsilon, step.hidden + t * hidden); });
  linear(worker, {step.hidden, hidden, tokens, w.quantized}, layer.gate_up, SiluAndMultiply{w.activated.get(), model.intermediate_size, model.intermediate_size});
  worker.wait_for_all();
  linear(worker, {w.activated.get(), model.intermediate_size, tokens, w.quantized}, layer.down, AddToResidual{w.residual.get(), hidden, hidden});
  worker.wait_for_all();
  const bf16* next_norm = index + 1 < model.num_layers ? model.layers[index + 1].input_norm : model.final_norm;
  each_token([&](int t) { rms_norm(w.residual.get() + t * hidden, next_norm, hidden, model.epsilon, step.hidden + t * hidden); });
}

inline void run_step(Pool& pool, const Model& model, const Step& step, Workspace& workspace) {
  workspace.reserve(model, step.num_tokens);
  make_items(model.layers[0].attention, step.requests, workspace.items);
  pool.run([&](Worker& worker) {
    const int64_t hidden = model.hidden_size;
    worker.share(static_cast<int>(step.num_tokens), 4, [&](int t) {
      bf16* residual = workspace.residual.get() + t * hidden;
      std::memcpy(residual, model.embedding + step.input_ids[t] * hidden, sizeof(bf16) * static_cast<size_t>(hidden));
      rms_norm(residual, model.layers[0].input_norm, hidden, model.epsilon, step.hidden + t * hidden);
    });
    worker.wait_for_all();
    for (int64_t layer = 0; layer < model.num_layers; ++layer) run_layer(worker, model, layer, step, workspace);
  });
}

}  // namespace stoker
