import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.stress
@pytest.mark.parametrize("name", ["start", "memory", "engine", "serve", "scheduler", "protocol"])
def test_a_benchmark_prints_its_table_and_writes_its_figures(name: str) -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / f"{name}.py", "--scale", "0.05"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *table, written = done.stdout.splitlines()
    assert len(table) >= 2
    assert Path(written.removeprefix("written to ")).is_file()
