"""The flags that every benchmark takes."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from servers import DEMO_MODEL
from vllm_peer import VllmPeer


@dataclass(slots=True, frozen=True)
class Options:
    """`peer` None: ours alone. `scale` 1 is the real size; smaller values try a benchmark out."""

    peer: VllmPeer | None
    model_uri: str
    scale: float

    @property
    def peer_name(self) -> str | None:
        return self.peer.name if self.peer else None

    @property
    def model_format(self) -> str:
        return "GGUF" if self.model_uri.endswith(".gguf") else "safetensors"

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.scale))


def read_options(description: str) -> Options:
    """Without --peers we load the demo model's GGUF; with it, both load the very same safetensors file."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="run vllm from this directory beside us")
    parser.add_argument("--model", metavar="URI", help=f"the model we serve (default: the peers' directory, else {DEMO_MODEL})")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the real number of requests or repetitions, to try a benchmark out")
    arguments = parser.parse_args()
    peer = VllmPeer(arguments.peers.resolve()) if arguments.peers else None
    return Options(peer, arguments.model or (f"file://{peer.model}" if peer else DEMO_MODEL), arguments.scale)
