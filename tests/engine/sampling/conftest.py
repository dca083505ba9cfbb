from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stoker_engine.core.scheduler_output import NewRequestData
from stoker_engine.sampling.cpu_picker import CpuPicker
from stoker_engine.sampling.picker import Picker
from stoker_engine.sampling.sampler import Sampler, SamplerOutput
from stoker_engine.sampling.sampling_metadata import build_sampling_metadata
from stoker_engine.sampling.sampling_state import SamplingState, new_sampling_state
from stoker_engine.sampling.torch_picker import TorchPicker
from stoker_engine.sampling_params import SamplingParams
from stoker_kernels.cpu.library import find_instruction_set
from stoker_kernels.cpu.ops import CpuOps

MakeState = Callable[..., SamplingState]
Sample = Callable[..., SamplerOutput]
MakePicker = Callable[[int], Picker]


@pytest.fixture
def make_state() -> MakeState:
    def make(params: SamplingParams, **given: Any) -> SamplingState:
        # given: prompt, output, eos, bad_words, vocab_size, request_id
        prompt, output = given.get("prompt", (1, 2, 3)), given.get("output", ())
        request = NewRequestData(
            request_id=given.get("request_id", "request"),
            token_ids=[*prompt, *output],
            num_prompt_tokens=len(prompt),
            sampling_params=params,
            eos_token_ids=list(given.get("eos", ())),
            bad_words_token_ids=[list(word) for word in given.get("bad_words", ())],
            block_ids=[],
            num_computed_tokens=0,
        )
        return new_sampling_state(request, given.get("vocab_size", 100), engine_seed=0)

    return make


def _make_cpu_picker(vocab_size: int) -> Picker:
    instruction_set = find_instruction_set()
    assert instruction_set is not None, "the C++ ops are not built: make setup"
    return CpuPicker(CpuOps(instruction_set), vocab_size)


@pytest.fixture(params=[TorchPicker, _make_cpu_picker], ids=["torch", "cpu"])
def make_picker(request: pytest.FixtureRequest) -> MakePicker:
    return request.param


@pytest.fixture
def sample(make_picker: MakePicker) -> Sample:
    def run(logits: Tensor, states: Sequence[SamplingState], positions: Sequence[int] | None = None, vocab_size: int | None = None) -> SamplerOutput:
        vocab_size = logits.shape[1] if vocab_size is None else vocab_size
        metadata = build_sampling_metadata(states, vocab_size, torch.device("cpu"))
        where = np.zeros(len(states), dtype=np.int64) if positions is None else np.array(positions, dtype=np.int64)
        return Sampler(vocab_size, make_picker(vocab_size)).sample(logits.clone(), metadata, where)

    return run
