// The C interface: what Python calls through ctypes. Every pointer is to memory that the caller keeps until the call returns.
#include <mutex>

#include "llama.h"
#include "sampling.h"

#define STOKER_EXPORT extern "C" __attribute__((visibility("default")))

using namespace stoker;

namespace {

std::mutex pool_mutex;
// Never destroyed: a process may end while a thread of it computes.
std::unique_ptr<Pool>& pool = *new std::unique_ptr<Pool>;

Pool& shared_pool() {
  if (!pool) pool = std::make_unique<Pool>(1);
  return *pool;
}

// One call at a time computes: the threads are the same for all.
template <typename Body>
void in_parallel(Body body) {
  std::lock_guard<std::mutex> lock(pool_mutex);
  shared_pool().run(body);
}

// A linear layer by itself, with room for its input in one byte that all such calls share.
template <typename Epilogue>
void run_linear(const bf16* x, int64_t stride, int64_t rows, const Matrix& weights, const Epilogue& epilogue) {
  static QuantizedRows& quantized = *new QuantizedRows;
  std::lock_guard<std::mutex> lock(pool_mutex);
  if (weights.format == Format::kInt8Dot) quantized.reserve(rows, weights.inputs);
  shared_pool().run([&](Worker& worker) { linear(worker, {x, stride, rows, quantized}, weights, epilogue); });
}

}  // namespace

STOKER_EXPORT const char* stoker_instruction_set() { return kInstructionSet; }

// The digest of the sources, as build.py makes it.
STOKER_EXPORT const char* stoker_sources() { return STOKER_SOURCES; }

STOKER_EXPORT void stoker_set_num_threads(int64_t number) {
  std::lock_guard<std::mutex> lock(pool_mutex);
  if (!pool || pool->count() != number) pool = std::make_unique<Pool>(static_cast<int>(number));
}

// tiles: zeroed, [padded outputs] · inputs of the format; scales: [padded outputs], null for bf16.
STOKER_EXPORT void stoker_pack(const bf16* weights, int64_t outputs, int64_t inputs, int64_t interleaved, int64_t format, void* tiles, float* scales) {
  in_parallel([&](Worker& worker) { pack(worker, weights, outputs, inputs, interleaved != 0, static_cast<Format>(format), tiles, scales); });
}

STOKER_EXPORT void stoker_linear(const bf16* x, int64_t stride, int64_t rows, const Matrix* weights, bf16* out) {
  run_linear(x, stride, rows, *weights, StoreRounded{out, weights->outputs, weights->outputs});
}

STOKER_EXPORT void stoker_linear_to_floats(const bf16* x, int64_t stride, int64_t rows, const Matrix* weights, float* out) {
  run_linear(x, stride, rows, *weights, StoreFloats{out, weights->outputs, weights->outputs});
}

STOKER_EXPORT void stoker_linear_add(const bf16* x, int64_t stride, int64_t rows, const Matrix* weights, bf16* residual) {
  run_linear(x, stride, rows, *weights, AddToResidual{residual, weights->outputs, weights->outputs});
}

// weights: interleaved; out [rows, intermediate].
STOKER_EXPORT void stoker_linear_silu_and_mul(const bf16* x, int64_t stride, int64_t rows, const Matrix* weights, int64_t intermediate, bf16* out) {
  run_linear(x, stride, rows, *weights, SiluAndMultiply{out, intermediate, intermediate});
}

STOKER_EXPORT void stoker_rms_norm(const bf16* x, int64_t stride, int64_t rows, const bf16* weight, int64_t size, float epsilon, bf16* out) {
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(rows), 4, [&](int r) { rms_norm(x + r * stride, weight, size, epsilon, out + r * size); });
  });
}

STOKER_EXPORT void stoker_add_rms_norm(const bf16* x, int64_t rows, bf16* residual, const bf16* weight, int64_t size, float epsilon, bf16* out) {
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(rows), 4, [&](int r) {
      add_to_residual(x + r * size, residual + r * size, size);
      rms_norm(residual + r * size, weight, size, epsilon, out + r * size);
    });
  });
}

STOKER_EXPORT void stoker_silu_and_mul(const bf16* x, int64_t stride, int64_t rows, int64_t size, bf16* out) {
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(rows), 4, [&](int r) { silu_and_multiply(x + r * stride, x + r * stride + size, size, out + r * size); });
  });
}

// qkv [tokens, query | key | value heads, head_dim], rotated in place; cos_sin [tokens, 2, half].
STOKER_EXPORT void stoker_rotate_and_cache(bf16* qkv, int64_t tokens, const AttentionShape* shape, const bf16* cos_sin, int64_t half, const int64_t* slots,
                                           bf16* cache) {
  const int64_t width = (shape->num_heads + 2 * shape->num_kv_heads) * shape->head_dim;
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(tokens), 4, [&](int t) { rotate_and_cache(qkv + t * width, *shape, cos_sin + t * 2 * half, half, slots[t], cache); });
  });
}

STOKER_EXPORT void stoker_attend(const bf16* query, int64_t query_stride, const AttentionShape* shape, const AttentionBatch* batch, const bf16* cache,
                                 bf16* out) {
  std::vector<AttentionItem> items;
  make_items(*shape, *batch, items);
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(items.size()), 1, [&](int i) {
      attend(scratch_for(shape->head_dim), *shape, *batch, items[i], query, query_stride, cache, out, shape->num_heads * shape->head_dim);
    });
  });
}

STOKER_EXPORT Workspace* stoker_new_workspace() { return new Workspace(); }

STOKER_EXPORT void stoker_delete_workspace(Workspace* workspace) { delete workspace; }

STOKER_EXPORT void stoker_run_step(const Model* model, const Step* step, Workspace* workspace) {
  std::lock_guard<std::mutex> lock(pool_mutex);
  run_step(shared_pool(), *model, *step, *workspace);
}

// logits [rows, stride], of which the first `vocabulary` count; how, positions, token_ids, largest: [rows]. Returns how many rows' largest is not finite.
STOKER_EXPORT int64_t stoker_sample(const float* logits, int64_t stride, int64_t rows, int64_t vocabulary, const SamplingRow* how, const int64_t* positions,
                                    int64_t* token_ids, float* largest) {
  const auto each = [&](int64_t r) {
    const Largest found = sample(logits + r * stride, vocabulary, how[r], positions[r]);
    token_ids[r] = found.token_id;
    largest[r] = found.value;
  };
  if (rows == 1) {
    each(0);  // 15 µs: others would wake up too late to help
  } else {
    in_parallel([&](Worker& worker) { worker.share(static_cast<int>(rows), 1, each); });
  }
  int64_t not_finite = 0;
  for (int64_t r = 0; r < rows; ++r) not_finite += !std::isfinite(largest[r]);
  return not_finite;
}

STOKER_EXPORT void stoker_find_largest(const float* logits, int64_t stride, int64_t rows, int64_t vocabulary, float* largest) {
  in_parallel([&](Worker& worker) {
    worker.share(static_cast<int>(rows), 1, [&](int r) { largest[r] = find_largest(logits + r * stride, vocabulary).value; });
  });
}
