"""Compiles the libraries: run as a program, or by the build hook at install. Imports nothing but the standard library, for the hook."""

import hashlib
import os
import platform
import shlex
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
    """There is no C++ compiler, none where CXX says, or none that can compile the sources."""


def instruction_sets() -> tuple[str, ...]:
    """Those that this kind of machine can have, the fastest first."""
    return tuple(_FLAGS) if platform.machine() in ("x86_64", "AMD64") else ("generic",)


def library_path(instruction_set: str) -> Path:
    return LIBRARIES / f"libstoker_{instruction_set}.so"


def build() -> list[Path]:
    """Compiles what other sources were used for; returns all libraries.

    Raises CompilerMissingError, and OSError where there is no place for the libraries.
    """
    libraries = [library_path(name) for name in instruction_sets()]
    state = _state()
    if not all(path.exists() for path in libraries) or not BUILT_FROM.exists() or BUILT_FROM.read_text() != state:
        compiler = _compiler()
        LIBRARIES.mkdir(exist_ok=True)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda name: _compile(compiler, name), instruction_sets()))
        BUILT_FROM.write_text(state)
    return libraries


def _compiler() -> list[str]:
    """The command of CXX, which may have arguments, or the first compiler on the path."""
    text = os.environ.get("CXX", "")
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise CompilerMissingError(f"CXX: {text!r}: {error}") from error
    if not command:
        command = [path for name in ("c++", "g++", "clang++") if (path := shutil.which(name)) is not None][:1]
    if not command:
        raise CompilerMissingError("no C++ compiler: install g++, or set CXX")
    if shutil.which(command[0]) is None:
        raise CompilerMissingError(f"CXX: there is no program {command[0]!r}")
    return command


def sources_digest() -> str:
    """Of all that the libraries are made from; each carries the one that it was made from."""
    digest = hashlib.sha256()
    for path in sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp"), Path(__file__))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _state() -> str:
    """What the libraries are made of and for: after a copy into an image dates mean nothing, and the machine may be another."""
    return repr((sources_digest(), platform.machine(), platform.libc_ver()))


def _compile(compiler: list[str], instruction_set: str) -> None:
    path = library_path(instruction_set)
    # A library that runs is replaced, never written to.
    partial = path.with_suffix(f".{os.getpid()}.partial")
    sources = sorted(map(str, SOURCES.glob("*.cpp")))
    digest = f'-DSTOKER_SOURCES="{sources_digest()}"'
    command = [*compiler, *_COMMON, digest, *_WARNINGS, *_FLAGS[instruction_set], *sources, *_LINKING, "-o", str(partial)]
    try:
        subprocess.run(command, check=True)
        partial.replace(path)
    except subprocess.CalledProcessError as error:
        raise CompilerMissingError(f"{compiler[0]} cannot compile them; g++ 10 or clang 9 on Linux can") from error
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        build()
    except (CompilerMissingError, OSError) as error:
        sys.exit(f"the C++ ops are not built: {error}")
