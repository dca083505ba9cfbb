"""Profile: what one thread and its device compute, recorded by torch and written as a trace for chrome://tracing or Perfetto."""

import itertools
import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_numbers = itertools.count(1)


class Profile:
    """Records from its construction. Raises OSError where the directory cannot be made."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory) / f"trace-{os.getpid()}-{next(_numbers)}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self._profile = profile(activities=activities)
        self._profile.start()

    def write(self) -> None:
        """Ends the record. Raises OSError where the file cannot be written."""
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
