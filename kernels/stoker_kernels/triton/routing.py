"""Which experts each token goes to, and the pairs of a token and an expert in the order of the experts."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config, padded_size


@triton.jit(do_not_specialize=["num_tokens"])
def _route_kernel(
    weights: tl.tensor,  # float32 [T, NUM_CHOSEN]
    experts: tl.tensor,  # int32 [T, NUM_CHOSEN]
    router_logits: tl.tensor,  # [T, num_experts]
    logits_stride: tl.tensor,
    num_tokens: tl.tensor,
    num_experts: tl.tensor,
    NUM_CHOSEN: tl.constexpr,
    PADDED_CHOSEN: tl.constexpr,
    PADDED_EXPERTS: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    tokens = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns, places = tl.arange(0, PADDED_EXPERTS)[None, :], tl.arange(0, PADDED_CHOSEN)[None, :]
    is_token = (tokens < num_tokens)[:, None]
    is_expert = columns < num_experts
    at = router_logits + tokens[:, None] * logits_stride + columns
    logits = tl.load(at, mask=is_token & is_expert, other=0.0).to(tl.float32)
    logits = tl.where(is_expert, logits, float("-inf"))
    left = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    left = left / tl.sum(left, axis=1)[:, None]
    left = tl.where(is_expert, left, -1.0)
    chosen = tl.zeros([ROWS, PADDED_CHOSEN], dtype=tl.float32)
    for place in tl.static_range(NUM_CHOSEN):
        expert = tl.argmax(left, axis=1, tie_break_left=True)[:, None]
        chosen = tl.where(places == place, tl.max(left, axis=1)[:, None], chosen)
        left = tl.where(columns == expert, -1.0, left)
        tl.store(experts + tokens[:, None] * NUM_CHOSEN + place, expert, mask=is_token)
    if RENORMALIZE:
        chosen = chosen / tl.sum(chosen, axis=1)[:, None]
    tl.store(weights + tokens[:, None] * NUM_CHOSEN + places, chosen, mask=is_token & (places < NUM_CHOSEN))


def route(router_logits: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """router_logits [T, experts] → weights float32 [T, num_chosen], experts int32 [T, num_chosen], the likeliest first, the first of equals."""
    num_tokens, num_experts = router_logits.shape
    weights = torch.empty((num_tokens, num_chosen), dtype=torch.float32, device=router_logits.device)
    experts = torch.empty((num_tokens, num_chosen), dtype=torch.int32, device=router_logits.device)
    config = launch_config("route", "*", router_logits.device)
    _route_kernel[(triton.cdiv(num_tokens, config["ROWS"]),)](
        *(weights, experts, router_logits, router_logits.stride(0), num_tokens, num_experts),
        NUM_CHOSEN=num_chosen,
        PADDED_CHOSEN=padded_size(num_chosen),
        PADDED_EXPERTS=padded_size(num_experts),
        RENORMALIZE=renormalize,
        **config,
    )
    return weights, experts


@dataclass(frozen=True, slots=True)
class ExpertOrder:
    """pairs [P]: the pairs by their experts, earlier ones first; expert e has pairs[starts[e]:starts[e + 1]]."""

    pairs: Tensor
    starts: Tensor


def order_by_expert(experts: Tensor, num_experts: int) -> ExpertOrder:
    """experts int32 [T, n]: pair p is token p // n. Nothing waits for the device."""
    by_expert, pairs = experts.flatten().sort(stable=True)
    starts = torch.searchsorted(by_expert, torch.arange(num_experts + 1, dtype=experts.dtype, device=experts.device))
    return ExpertOrder(pairs, starts)
