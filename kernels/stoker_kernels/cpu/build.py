"""Compiles the libraries: run as a program, or by the build hook at install. Imports nothing but the standard library, for the hook."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
LIBRARIES = Path(__file__).parent / "lib"
BUILT_FROM = LIBRARIES / "built-from"

# Products and sums are fused where the source says so and nowhere else: an op has the same bits wherever it is inlined.
_NUMERICS = ("-fno-math-errno", "-ffp-contract=off")
_COMMON = ("-std=c++17", "-O3", *_NUMERICS, "-pthread", "-fPIC", "-shared", "-fvisibility=hidden")
_LINKING = ("-Wl,-Bsymbolic", "-static-libstdc++", "-static-libgcc")
# GCC 12 takes the undefined halves in its own AVX-512 headers for a mistake.
_WARNINGS = ("-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
_AVX512_FEATURES = ("f", "bw", "vl", "dq", "bf16", "vnni", "vbmi")
_AVX512 = (*(f"-mavx512{feature}" for feature in _AVX512_FEATURES), "-mavx2", "-mfma", "-mprefer-vector-width=512")
_FLAGS: dict[str, tuple[str, ...]] = {"avx512_bf16": _AVX512, "avx2": ("-mavx2", "-mfma"), "generic": ()}


class CompilerMissingError(RuntimeError):
    """There is no C++ compiler."""


def instruction_sets() -> tuple[str, ...]:
    """Those that this kind of machine can have, the fastest first."""
    return tuple(_FLAGS) if platform.machine() in ("x86_64", "AMD64") else ("generic",)


def library_path(instruction_set: str) -> Path:
    return LIBRARIES / f"libstoker_{instruction_set}.so"


def build() -> list[Path]:
    """Compiles what other sources were used for; returns all libraries. Raises CompilerMissingError, or CalledProcessError where the compiler fails."""
    libraries = [library_path(name) for name in instruction_sets()]
    state = _state()
    if not all(path.exists() for path in libraries) or not BUILT_FROM.exists() or BUILT_FROM.read_text() != state:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            raise CompilerMissingError("no C++ compiler: install g++, or set CXX")
        LIBRARIES.mkdir(exist_ok=True)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda name: _compile(compiler, name), instruction_sets()))
        BUILT_FROM.write_text(state)
    return libraries


def _state() -> str:
    """What the libraries are made of and for, as a digest: after a copy into an image dates mean nothing, and the machine may be another."""
    digest = hashlib.sha256(repr((platform.machine(), platform.libc_ver())).encode())
    for path in sorted((*SOURCES.iterdir(), Path(__file__))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _compile(compiler: str, instruction_set: str) -> None:
    path = library_path(instruction_set)
    # A library that runs is replaced, never written to.
    partial = path.with_suffix(f".{os.getpid()}.partial")
    sources = sorted(map(str, SOURCES.glob("*.cpp")))
    subprocess.run([compiler, *_COMMON, *_WARNINGS, *_FLAGS[instruction_set], *sources, *_LINKING, "-o", str(partial)], check=True)
    partial.replace(path)


if __name__ == "__main__":
    try:
        build()
    except CompilerMissingError as error:
        sys.exit(str(error))
