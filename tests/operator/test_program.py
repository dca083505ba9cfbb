"""One program and its process."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from stoker_operator.plan import ProgramPlan
from stoker_operator.process import ChildProcess
from stoker_operator.program import Program, ProgramEvents

DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def make_program(tmp_path: Path, lines: list[str]) -> Program:
    plan = ProgramPlan("engine", (sys.executable, "-c", DEAF), str(tmp_path / "termination"))
    return Program(plan, (), ProgramEvents(on_line=lambda component, line: lines.append(line), on_exit=lambda exit_: None))


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_kill_while_the_process_is_being_started_kills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    program = make_program(tmp_path, lines)
    start = ChildProcess.start

    async def start_and_be_killed_meanwhile(*args: object) -> ChildProcess:
        process = await start(*args)  # type: ignore[arg-type]
        while "deaf" not in lines:
            await asyncio.sleep(0.01)
        program.kill()
        return process

    monkeypatch.setattr(ChildProcess, "start", start_and_be_killed_meanwhile)
    async with asyncio.timeout(20):
        await program.keep_running()
    assert program.ended.is_set()
    assert not program.is_running


async def test_a_start_that_is_cancelled_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
    before = num_open_files()
    starting = asyncio.create_task(ChildProcess.start(("true",), {}, (), lambda line: None))
    await asyncio.sleep(0)
    assert num_open_files() == before + 2
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert num_open_files() == before


async def test_a_process_gets_its_variables_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("BOTH", "1")
    lines: list[str] = []
    command = (sys.executable, "-c", "import os; print(*(os.environ[name] for name in ('OURS', 'BOTH', 'ITS')))")
    process = await ChildProcess.start(command, {"BOTH": "2", "ITS": "3"}, (), lines.append)
    assert await process.wait() == 0
    assert lines == ["1 2 3"]
