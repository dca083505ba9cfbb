"""Times the candidates for a GPU's entries of the launch table: `python -m stoker_kernels.triton.tune table.json` writes launch_table.json with them."""

import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from triton import OutOfResources
from triton.testing import do_bench

from stoker_kernels.triton.attend import attention_class
from stoker_kernels.triton.embedding import selected_logits
from stoker_kernels.triton.launch import LaunchConfig, LaunchTable, device_name, launch_table, launched_with
from stoker_kernels.triton.paged_attention import paged_attention, plan_attention
from stoker_kernels.triton.product import row_class
from stoker_kernels.triton.quantized import int4_matmul, int8_matmul
from stoker_kernels.triton.sampling import sample

logger = logging.getLogger(__name__)

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class TuningCase:
    """A launch that stands for a class of shapes, and the configurations to try for it."""

    kernel: str
    shape_class: str
    candidates: Sequence[LaunchConfig]
    run: Run


def tune(cases: Sequence[TuningCase], device: torch.device, milliseconds: Callable[[Run], float]) -> LaunchTable:
    """The launch table with the quickest candidate of each case under the device's name. A candidate that the device has no room for is passed over."""
    table = launch_table()
    tuned = table.setdefault(device_name(device), {})
    for case in cases:
        timed = []
        for candidate in case.candidates:
            with launched_with(case.kernel, case.shape_class, candidate, device):
                try:
                    timed.append((milliseconds(case.run), dict(candidate)))
                except OutOfResources:
                    logger.info("%s for %s has no room for %s", case.kernel, case.shape_class, candidate)
        if not timed:
            logger.warning("%s for %s keeps its settings: the device has no room for any other", case.kernel, case.shape_class)
            continue
        quickest, chosen = min(timed, key=lambda pair: pair[0])
        logger.info("%s for %s: %.3f ms with %s, %.3f ms at worst", case.kernel, case.shape_class, quickest, chosen, max(time for time, _ in timed))
        tuned.setdefault(case.kernel, {})[case.shape_class] = chosen
    return table


def all_cases(device: torch.device) -> Iterator[TuningCase]:
    """Shapes of models of 1 to 10 billion parameters."""
    for head_dim in (64, 128, 256):
        yield _attention_case("decode_attention", [(1, 2000)] * 32, head_dim, device)
        yield _attention_case("prefill_attention", [(2048, 0)] * 4, head_dim, device)
    for num_rows in (8, 512):
        yield from _product_cases(num_rows, device)
    rows = torch.ones(32, device=device)
    logits, keys = 3 * torch.randn(32, 128_000, device=device), torch.arange(32, device=device)
    yield TuningCase(
        "sample", "*", candidates(BLOCK=[2048, 4096, 8192], num_warps=[8, 16]), lambda: sample(logits, rows, rows.int() * 50, rows * 0.9, rows * 0, keys)
    )


def candidates(**choices: Sequence[int]) -> list[LaunchConfig]:
    """Every combination of the choices."""
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def _attention_case(kernel: str, requests: list[tuple[int, int]], head_dim: int, device: torch.device) -> TuningCase:
    """`requests` are (rows, tokens before). SPLIT stays as it is: it decides how decodes are summed, so it must not differ between devices of one model."""
    lengths = np.array([rows + before for rows, before in requests])
    blocks = -(-int(lengths.max()) // 16)
    block_table = np.arange(len(requests) * blocks).reshape(len(requests), blocks)
    kv_cache = torch.randn(block_table.size, 16, 2, 8, head_dim, device=device, dtype=torch.bfloat16)
    query_start = np.cumsum([0, *(rows for rows, _ in requests)])
    query = torch.randn(int(query_start[-1]), 32, head_dim, device=device, dtype=torch.bfloat16)
    plan = plan_attention(query_start, lengths, block_table, kv_cache)
    tiles = {"TILE": [32, 64, 128], "num_warps": [4, 8], "num_stages": [1, 2, 3]}
    choices = {"SPLIT": [512]} if kernel == "decode_attention" else {"ROWS": [64, 128]}
    return TuningCase(
        kernel, attention_class(query.dtype, head_dim), candidates(**choices, **tiles), lambda: paged_attention(query, kv_cache, plan, head_dim**-0.5)
    )


def _product_cases(num_rows: int, device: torch.device) -> Iterator[TuningCase]:
    """DEPTH stays the same for few and for many rows, so that a row is summed alike in both."""
    x = torch.randn(num_rows, 4096, device=device, dtype=torch.bfloat16)
    rows = [16] if row_class(num_rows) == "*" else [64, 128]
    tiles = {"ROWS": rows, "COLUMNS": [32, 64, 128], "num_warps": [4, 8], "num_stages": [3, 4]}
    eight, scales = torch.randint(-127, 128, (14336, 4096), dtype=torch.int8, device=device), torch.rand(14336, device=device)
    four, group_scales = torch.randint(256, (14336, 2048), dtype=torch.uint8, device=device), torch.rand(14336, 32, device=device)
    head, chosen = torch.randn(128_000, 4096, device=device, dtype=torch.bfloat16), torch.arange(num_rows, device=device)
    kind = row_class(num_rows)
    yield TuningCase("int8_matmul", kind, candidates(DEPTH=[64], **tiles), lambda: int8_matmul(x, eight, scales))
    yield TuningCase("int4_matmul", kind, candidates(**tiles), lambda: int4_matmul(x, four, group_scales))
    yield TuningCase("selected_logits", kind, candidates(DEPTH=[64], **tiles), lambda: selected_logits(x, chosen, head))


def main(path: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    device = torch.device("cuda", torch.cuda.current_device())
    table = tune(list(all_cases(device)), device, do_bench)
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
