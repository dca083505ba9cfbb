import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stoker_kernels import InstructionSetError, QuantizationError, choose_ops
from stoker_kernels.cpu import library
from stoker_kernels.cpu.library import available_instruction_sets, library_path

CPU = torch.device("cpu")


@pytest.fixture
def fastest() -> str:
    """The instruction set of the fastest library that there is."""
    available = available_instruction_sets()
    if not available:
        pytest.skip("no library is built")
    return available[0]


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
    with pytest.raises(InstructionSetError, match="STOKER_CPU_INSTRUCTION_SET: 'avx9' is none of"):
        choose_ops(CPU, torch.bfloat16, 16, 64)


def test_an_empty_forced_instruction_set_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CPU_INSTRUCTION_SET", "")
    assert choose_ops(CPU, torch.bfloat16, 16, 64).cpu is not None


@pytest.fixture
def stand_in_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is loaded instead of any library."""
    monkeypatch.setattr(library, "library_path", lambda name: tmp_path / "library.so")
    library.load_library.cache_clear()
    yield tmp_path / "library.so"
    library.load_library.cache_clear()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("damaged", "file too short"), ("of another instruction set", "was built for generic"), ("of other sources", "was built from other sources")],
)
def test_a_library_that_cannot_be_used_is_told_and_torch_runs(
    fault: str, reason: str, fastest: str, stand_in_library: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "damaged":
        stand_in_library.write_bytes(b"")
    elif fault == "of other sources":
        stand_in_library.write_bytes(library_path(fastest).read_bytes())
        monkeypatch.setattr(library, "sources_digest", lambda: "other")
    elif fastest == "generic":
        pytest.skip("there is one instruction set")
    else:
        stand_in_library.write_bytes(library_path("generic").read_bytes())
    monkeypatch.setenv("STOKER_CPU_INSTRUCTION_SET", fastest)
    assert choose_ops(CPU, torch.bfloat16, 16, 64).name == "torch"
    assert str(stand_in_library) in caplog.messages[0] and f"{reason}; install stoker again" in caplog.messages[0]
    with pytest.raises(QuantizationError, match=reason):
        choose_ops(CPU, torch.bfloat16, 16, 64, "int8")


def test_a_cuda_device_runs_the_triton_kernels(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(torch.device("cuda"), torch.bfloat16, 16, 64).name == "triton"
    assert caplog.messages == ["ops: triton, which has been checked in an interpreter and not on a GPU yet"]


def test_heads_too_large_for_the_triton_kernels_run_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker_kernels"):
        assert choose_ops(torch.device("cuda"), torch.bfloat16, 16, 512).name == "torch"
    assert "heads of at most 256 dimensions, they have 512" in caplog.messages[0]
