import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.stress
@pytest.mark.parametrize("name", ["start", "memory", "engine", "serve", "kernels", "scheduler", "step", "protocol", "api"])
def test_a_benchmark_prints_its_table_and_writes_its_figures(name: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--scale", "0.05", "--rounds", "1"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (written,) = [line for line in done.stdout.splitlines() if line.startswith("written to ")]
    assert json.loads(Path(written.removeprefix("written to ")).read_text(encoding="utf-8"))["rows"]
