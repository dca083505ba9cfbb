import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker_engine.version import __version__
from stoker_operator.__main__ import main
from stoker_operator.crd import crd_yaml

Write = Callable[[str], str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(args)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run_command


def test_crd_prints_the_definition(run: Run) -> None:
    assert run("crd") == (0, crd_yaml(), "")


def test_the_version_is_the_distributions(run: Run) -> None:
    assert run("--version") == (0, f"stoker {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), "stoker: the following arguments are required: COMMAND (--help lists the flags)\n"),
        (("up",), "stoker up: the following arguments are required: -f/--filename (--help lists the flags)\n"),
        (("up", "-f", "x", "--port", "99999"), "stoker up: argument --port: expected a port from 0 to 65535, got '99999' (--help lists the flags)\n"),
        (("up", "-f", "none.yaml"), "stoker up: none.yaml: No such file or directory; name a YAML file with one or more InferenceDeployments\n"),
    ],
)
def test_bad_arguments_are_one_line_and_code_2(run: Run, args: tuple[str, ...], line: str) -> None:
    assert run(*args) == (2, "", line)


def test_no_replica_at_all_is_one_line_and_code_2(run: Run, write_manifest: Write, manifest_text: str) -> None:
    file = write_manifest(manifest_text + "  replicas: 0\n")
    assert run("up", "-f", file) == (2, "", "stoker up: a.yaml: $.spec.replicas: nothing to run, every InferenceDeployment has 0; set 1 or more\n")


def test_a_port_in_use_is_one_line_and_code_1(run: Run, write_manifest: Write, manifest_text: str, taken_port: int) -> None:
    code, out, err = run("up", "-f", write_manifest(manifest_text), "--port", str(taken_port))
    assert (code, out) == (1, "")
    assert err == f"stoker up: port {taken_port} on 127.0.0.1 is in use; stop what listens there or choose another with --port\n"


def test_a_socket_directory_that_is_not_ours_is_one_line_and_code_1(
    run: Run, write_manifest: Write, manifest_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").symlink_to(tmp_path)
    monkeypatch.setattr("stoker_operator.local.local_root", lambda: tmp_path / "root")
    code, _, err = run("up", "-f", write_manifest(manifest_text), "--port", "0")
    assert (code, err) == (1, f"stoker up: socket directory {tmp_path}/root: not a directory; remove it\n")


def test_the_installed_command_reads_standard_input() -> None:
    command = [str(Path(sys.executable).with_name("stoker")), "up", "-f", "-"]
    ended = subprocess.run(command, input="kind: Pod\napiVersion: v1\n", capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (2, "stoker up: <stdin>:1: $.kind: Expected stoker.dev/v1alpha1 InferenceDeployment, got v1 Pod\n")
