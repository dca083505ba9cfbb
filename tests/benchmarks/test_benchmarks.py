import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from figures import TABLES
from peers import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
NAMES = re.findall(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0].split()
"""What `make bench` runs."""
OF_CLUSTERS = "reconcile"


def test_every_benchmark_is_run_by_make_and_has_a_table() -> None:
    programs = {path.stem for path in BENCHMARKS.glob("*.py") if "options.report(" in path.read_text(encoding="utf-8")}
    assert {*NAMES, OF_CLUSTERS} == programs == set(TABLES)


def test_make_runs_beside_every_peer_that_the_directory_holds(tmp_path: Path) -> None:
    places = (
        "vllm/bin/vllm",
        "hf/lib/python3.11/site-packages/llama_cpp",
        "hf/lib/python3.11/site-packages/transformers",
        "router/bin/vllm-router",
        "router/bin/smg",
    )
    for place in places:
        (tmp_path / place).mkdir(parents=True)
    done = subprocess.run(["make", "-n", "bench", f"PEERS={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name for name in ENVIRONMENTS if f'--peer "{name}={tmp_path}"' in done.stdout} == set(ENVIRONMENTS)


@pytest.mark.stress
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_prints_its_table_and_writes_its_figures(name: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--scale", "0.05", "--rounds", "1"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (written,) = [line for line in done.stdout.splitlines() if line.startswith("written to ")]
    assert json.loads(Path(written.removeprefix("written to ")).read_text(encoding="utf-8"))["rows"]
