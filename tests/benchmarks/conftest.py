import sys
from pathlib import Path

# The benchmarks and their drivers are programs, not a package: they find each other beside themselves.
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "drivers")]
