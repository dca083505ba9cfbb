import logging

import pytest
import torch

from stoker_kernels import QuantizationError, choose_ops

CPU = torch.device("cpu")


def test_the_chosen_implementation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        choose_ops(CPU, torch.bfloat16, 16, 64)
    assert caplog.messages[0].startswith("ops: cpu (")


@pytest.mark.parametrize(
    ("dtype", "block_size", "head_dim", "reason"),
    [
        (torch.float32, 16, 64, "the C++ ops compute in bfloat16, the model is float32"),
        (torch.bfloat16, 8, 64, "the C++ ops need a block size in multiples of 16, it is 8"),
        (torch.bfloat16, 16, 24, "the C++ ops need heads in multiples of 16, they have 24 dimensions"),
    ],
)
def test_what_the_cpp_ops_cannot_do_runs_in_torch_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture, dtype: torch.dtype, block_size: int, head_dim: int, reason: str
) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(CPU, dtype, block_size, head_dim).name == "torch"
    assert caplog.messages == [f"ops: torch ({reason})"]


def test_an_odd_number_of_inputs_runs_in_torch_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(CPU, torch.bfloat16, 16, 64, input_sizes={64, 81}).name == "torch"
    assert caplog.messages == ["ops: torch (the C++ ops take the inputs of a linear layer in pairs, one has 81)"]


@pytest.mark.parametrize("quantization", ["int8", "int8-w8a8"])
def test_quantized_weights_without_ops_for_them_are_refused_with_the_reason(quantization: str) -> None:
    with pytest.raises(QuantizationError, match=f"^there are no ops for '{quantization}' here .the C.. ops compute in bfloat16, the model is float32.$"):
        choose_ops(CPU, torch.float32, 16, 64, quantization)


def test_a_device_without_ops_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no ops for device type 'meta'"):
        choose_ops(torch.device("meta"), torch.bfloat16, 16, 64)


def test_an_unknown_forced_instruction_set_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CPU_INSTRUCTION_SET", "avx9")
    with pytest.raises(ValueError, match="STOKER_CPU_INSTRUCTION_SET: 'avx9' is none of"):
        choose_ops(CPU, torch.bfloat16, 16, 64)


def test_a_cuda_device_runs_the_triton_kernels(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(torch.device("cuda"), torch.bfloat16, 16, 64).name == "triton"
    assert caplog.messages == ["ops: triton, which has been checked in an interpreter and not on a GPU yet"]


def test_heads_too_large_for_the_triton_kernels_run_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(torch.device("cuda"), torch.bfloat16, 16, 512).name == "torch"
    assert "heads of at most 256 dimensions, they have 512" in caplog.messages[0]
