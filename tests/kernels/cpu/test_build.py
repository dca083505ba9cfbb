"""What the build does where a compiler is missing or fails: with programs in its place, as compiling takes a minute."""

import subprocess
import sys
from pathlib import Path

import pytest

from stoker_kernels.cpu import build


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the libraries, which is not there yet."""
    monkeypatch.setattr(build, "LIBRARIES", tmp_path / "lib")
    monkeypatch.setattr(build, "BUILT_FROM", tmp_path / "lib" / "built-from")
    return tmp_path / "lib"


def compiler(directory: Path, program: str) -> str:
    """A command of two words; the last argument of a call is the file to write."""
    (directory / "compile.py").write_text(f"import pathlib, sys\n{program}\n")
    return f"{sys.executable} {directory / 'compile.py'}"


def test_a_compiler_with_arguments_builds_every_library_once(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "pathlib.Path(sys.argv[-1]).write_bytes(b'library')"))
    built = build.build()
    assert [path.read_bytes() for path in built] == [b"library"] * len(build.instruction_sets())
    monkeypatch.setenv("CXX", "nonesuch")
    assert build.build() == built
    assert sorted(libraries.iterdir()) == sorted([*built, build.BUILT_FROM])


def test_a_compiler_that_is_not_there_is_named(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nonesuch -O1")
    with pytest.raises(build.CompilerMissingError, match="CXX: there is no program 'nonesuch'"):
        build.build()
    assert not libraries.exists()


def test_a_compiler_that_fails_leaves_nothing_behind(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "pathlib.Path(sys.argv[-1]).write_bytes(b'half'); sys.exit(1)"))
    with pytest.raises(build.CompilerMissingError, match=f"{sys.executable} cannot compile them"):
        build.build()
    assert not list(libraries.iterdir())


def test_a_command_with_an_open_quote_is_told_as_it_stands(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ '-O1")
    with pytest.raises(build.CompilerMissingError, match=r"""^CXX: "g\+\+ '-O1": No closing quotation$"""):
        build.build()
    assert not libraries.exists()


def test_the_program_says_in_one_line_why_it_built_nothing(tmp_path: Path) -> None:
    program = tmp_path / "build.py"
    program.write_bytes(Path(build.__file__).read_bytes())
    (tmp_path / "lib").write_text("a file where the libraries belong")
    for command, reason in (("nonesuch", "CXX: there is no program 'nonesuch'"), (sys.executable, "File exists")):
        run = subprocess.run([sys.executable, program], env={"CXX": command, "PATH": "/nowhere"}, capture_output=True, text=True, check=False)
        assert run.returncode == 1
        assert run.stderr.startswith("the C++ ops are not built: ") and reason in run.stderr and run.stderr.count("\n") == 1
