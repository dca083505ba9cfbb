"""Paged attention of a step: prefill chunks and decodes, causal, each over its own request."""

import torch
from torch import Tensor


def paged_attention(
    query: Tensor,
    kv_cache: Tensor,
    query_start: Tensor,
    sequence_lengths: Tensor,
    block_table: Tensor,
    scale: float,
    *,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    kv_scale: Tensor | None = None,
) -> Tensor:
    """Causal attention of every request's query rows over its keys and values in the cache; head h reads key-value head h // (heads / key-value heads).

    query: [T, num_heads, D]; request r has the rows query_start[r]:query_start[r + 1], the last of its sequence_lengths[r] positions. A row without any
    position is 0. window: a row sees its own position and the window − 1 before it. soft_cap: a score s becomes soft_cap · tanh(s / soft_cap).
    sinks [num_heads]: a logit of each head that takes its share of the softmax and has no value. kv_scale [2, num_kv_heads]: what the cache holds is
    multiplied by it. Computed in float32, returned in query's dtype, [T, num_heads, D].
    """
    block_size = kv_cache.shape[1]
    group = query.shape[1] // kv_cache.shape[3]
    output = torch.zeros_like(query)
    for request in range(len(sequence_lengths)):
        start, end, length = int(query_start[request]), int(query_start[request + 1]), int(sequence_lengths[request])
        blocks = block_table[request, : -(-length // block_size)].long()
        key_value = kv_cache[blocks].float().flatten(0, 1)[:length]
        keys, values = (key_value if kv_scale is None else key_value * kv_scale[:, :, None]).unbind(1)
        for row in range(start, end):
            visible = length - (end - 1 - row)
            first = 0 if window is None else max(0, visible - window)
            for head in range(query.shape[1]):
                scores = keys[first:visible, head // group] @ query[row, head].float() * scale
                weights = _softmax(scores, soft_cap, None if sinks is None else sinks[head])
                output[row, head] = (weights @ values[first:visible, head // group]).to(query.dtype)
    return output


def _softmax(scores: Tensor, soft_cap: float | None, sink: Tensor | None) -> Tensor:
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if sink is None:
        return scores.softmax(0)
    return torch.cat((scores, sink.float().view(1))).softmax(0)[:-1]
