import sys
from pathlib import Path

# The benchmarks are programs, not a package: they find each other beside themselves.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
