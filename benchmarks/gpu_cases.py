"""What kernels.py times beside the ops of `Ops` on a GPU: Triton kernels of more, each against the same in plain torch."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from kernel_cases import ITEM, Call, Case, Place, Sizes
from stoker_kernels import reference
from stoker_kernels.dispatch import TORCH_OPS
from stoker_kernels.triton import activation, embedding, experts, penalties, quantized, routing, sampling

Arguments = tuple[object, ...]
FLOAT = 4
GROUP = 128
"""Inputs that share a scale in int4."""
NUM_EXPERTS, NUM_CHOSEN = 8, 2
NUM_SEEN = 500
"""Tokens that a row's penalties touch."""


def gpu_cases(sizes: Sizes) -> Iterator[Case]:
    """The table: a new kernel is one line."""
    hidden, inner, vocabulary = sizes.hidden, sizes.intermediate, sizes.vocabulary
    for rows in (1, 32, 1024):
        x, embedded = partial(_random, (rows, hidden)), (partial(_ids, rows, vocabulary), partial(_random, (vocabulary, hidden)))
        yield _case("embedding", rows, (embedding.embedding, functional.embedding), embedded, (2 * rows * hidden * ITEM, 0))
        yield _case("gelu_and_mul", rows, (activation.gelu_and_mul, torch_gelu), (partial(_random, (rows, 2 * inner)),), (3 * rows * inner * ITEM, 0))
        product = 2 * rows * inner * hidden
        yield _case("int8_matmul", rows, (quantized.int8_matmul, torch_int8), (x, *_int8(inner, hidden)), (inner * hidden, product))
        yield _case("int4_matmul", rows, (quantized.int4_matmul, reference.int4_matmul), (x, *_int4(inner, hidden)), (inner * hidden / 2, product))
        router = (partial(_random, (rows, NUM_EXPERTS)),)
        yield _case("route", rows, (partial(routing.route, num_chosen=NUM_CHOSEN, renormalize=True), torch_route), router, (rows * NUM_EXPERTS * ITEM, 0))
        used = min(NUM_EXPERTS, rows * NUM_CHOSEN)
        experts_of = (x, partial(_random, (NUM_EXPERTS, inner, hidden)), partial(_experts, rows))
        cost = (used * inner * hidden * ITEM, 2 * rows * NUM_CHOSEN * inner * hidden)
        yield _case("grouped_matmul", rows, (ordered_product, torch_experts), experts_of, cost)
        outputs = (partial(_random, (rows * NUM_CHOSEN, hidden)), partial(_floats, (rows, NUM_CHOSEN)))
        yield _case("combine_experts", rows, (experts.combine_experts, reference.combine_experts), outputs, ((NUM_CHOSEN + 1) * rows * hidden * ITEM, 0))
    for rows in (1, 32):
        logits = partial(_floats, (rows, vocabulary))
        weights = (partial(_random, (1024, hidden)), partial(_ids, rows, 1024), partial(_random, (vocabulary, hidden)))
        cost = (vocabulary * (hidden * ITEM + rows * FLOAT), 2 * rows * vocabulary * hidden)
        yield _case("selected_logits", rows, (embedding.selected_logits, torch_logits), weights, cost)
        settings = (partial(_full, 0.8, rows), partial(_full, 50, rows), partial(_full, 0.9, rows), partial(_full, 0.0, rows), partial(_ids, rows, 1 << 30))
        yield _case("sample", rows, (sampling.sample, torch_sample), (logits, *settings), (rows * vocabulary * FLOAT, 0))
        seen = (partial(_seen, rows, vocabulary), partial(_floats, (rows * NUM_SEEN,)), partial(_starts, rows), partial(_strengths, rows))
        yield _case("apply_penalties", rows, (penalties.apply_penalties, torch_penalties), (logits, *seen), (rows * NUM_SEEN * 4 * FLOAT, 0))


def _case(
    name: str, rows: int, ops: tuple[Callable[..., object], Callable[..., object]], arguments: tuple[Callable[[Place], object], ...], cost: tuple[float, float]
) -> Case:
    """`ops`: ours and torch's; `arguments`: how each is made; `cost`: bytes and operations."""

    def build(place: Place) -> Call:
        op, values = ops[place.ops is TORCH_OPS], [make(place) for make in arguments]
        return lambda: op(*values)

    return Case(name, f"{rows} rows", build, *cost)


def _random(shape: tuple[int, ...], place: Place) -> Tensor:
    return place.random(*shape)


def _floats(shape: tuple[int, ...], place: Place) -> Tensor:
    return torch.rand(shape, device=place.device) * 10


def _full(value: float, rows: int, place: Place) -> Tensor:
    return torch.full((rows,), value, device=place.device, dtype=torch.int32 if isinstance(value, int) else torch.float32)


def _ids(number: int, end: int, place: Place) -> Tensor:
    return torch.randint(end, (number,), device=place.device)


def _experts(rows: int, place: Place) -> Tensor:
    return torch.rand(rows, NUM_EXPERTS, device=place.device).topk(NUM_CHOSEN).indices.int()


def _int8(outputs: int, inputs: int) -> tuple[Callable[[Place], Tensor], ...]:
    return (lambda place: torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, device=place.device), partial(_floats, (outputs,)))


def _int4(outputs: int, inputs: int) -> tuple[Callable[[Place], Tensor], ...]:
    return (
        lambda place: torch.randint(256, (outputs, inputs // 2), dtype=torch.uint8, device=place.device),
        partial(_floats, (outputs, inputs // GROUP)),
    )


def _seen(rows: int, vocabulary: int, place: Place) -> Tensor:
    """No token twice in a row."""
    return torch.cat([torch.randperm(vocabulary, device=place.device)[:NUM_SEEN] for _ in range(rows)])


def _starts(rows: int, place: Place) -> Tensor:
    return torch.arange(rows + 1, device=place.device) * NUM_SEEN


def _strengths(rows: int, place: Place) -> Tensor:
    return torch.tensor([1.1, 0.2, 0.3], device=place.device).repeat(rows, 1)


def ordered_product(x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
    return experts.grouped_matmul(x, weight, routing.order_by_expert(chosen, len(weight)))


def torch_gelu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


def torch_int8(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    return (torch.matmul(x, weight.to(x.dtype).T) * scales).to(x.dtype)


def torch_route(router_logits: Tensor) -> tuple[Tensor, Tensor]:
    weights, chosen = router_logits.float().softmax(dim=-1).topk(NUM_CHOSEN)
    return weights / weights.sum(dim=-1, keepdim=True), chosen


def torch_experts(x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
    """Expert by expert, as models in transformers do it."""
    output = x.new_empty(chosen.numel(), weight.shape[1])
    for expert in range(len(weight)):
        tokens, places = (chosen == expert).nonzero(as_tuple=True)
        output[tokens * chosen.shape[1] + places] = torch.matmul(x[tokens], weight[expert].T)
    return output


def torch_logits(hidden: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(hidden[rows], weight.T).float()


def torch_sample(logits: Tensor, temperatures: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, _keys: Tensor) -> Tensor:
    """By sorting, as is usual."""
    ordered, ids = (logits / temperatures[:, None]).sort(dim=-1, descending=True)
    ranks = torch.arange(logits.shape[1], device=logits.device)
    probabilities = ordered.masked_fill(ranks >= top_k[:, None], -torch.inf).softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    kept = probabilities.masked_fill((before >= top_p[:, None]) | (probabilities < min_p[:, None] * probabilities[:, :1]), 0)
    return ids.gather(1, torch.multinomial(kept, 1))


def torch_penalties(logits: Tensor, token_ids: Tensor, counts: Tensor, starts: Tensor, strengths: Tensor) -> None:
    rows = torch.repeat_interleave(torch.arange(len(logits), device=logits.device), starts.diff())
    repetition, frequency, presence = strengths[rows].unbind(1)
    values = logits[rows, token_ids]
    values = torch.where(values > 0, values / repetition, values * repetition) - frequency * counts - presence * (counts > 0)
    logits[rows, token_ids] = values
