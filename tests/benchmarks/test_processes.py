import sys
from pathlib import Path

import psutil
import pytest

from processes import Driver, running_driver

READY = "import sys\nprint('{}', flush=True)\n"


def driver_of(program: str) -> list[str]:
    return [sys.executable, "-c", READY + program]


def test_a_driver_that_ends_when_it_is_asked_leaves_its_last_words() -> None:
    with (
        pytest.raises(RuntimeError, match=r"ended with 1:\n.*out of luck"),
        running_driver(driver_of("sys.stdin.readline()\nsys.exit('out of luck')"), {}) as driver,
        driver.running(),
    ):
        driver.ask({})


def test_a_driver_that_was_killed_while_it_stood_still_is_told_when_it_is_asked() -> None:
    with pytest.raises(RuntimeError, match="ended with -9"), running_driver(driver_of("sys.stdin.readline()"), {}) as driver:
        driver.process.kill()
        driver.process.wait()
        with driver.running():
            driver.ask({})


def test_an_interrupt_while_others_stand_still_leaves_no_program_behind() -> None:
    drivers: list[Driver] = []

    def interrupt() -> None:
        with running_driver(driver_of("sys.stdin.readline()"), {}) as first, running_driver(driver_of("sys.stdin.readline()"), {}) as second:
            drivers.extend((first, second))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert len(drivers) == 2 and not [each for each in drivers if psutil.pid_exists(each.process.pid)]


def test_a_child_that_stands_still_when_its_driver_is_gone_ends_too() -> None:
    start_child = "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE, start_new_session=True)"
    program = f"import subprocess, sys\n{start_child}\nprint('{{}}', flush=True)\nsys.stdin.readline()"
    with running_driver([sys.executable, "-c", program], {}) as driver:
        (_, child) = driver.family()
        driver.process.kill()
        driver.process.wait()
    assert not child.is_running()


def test_what_is_left_of_a_driver_that_is_gone_gets_a_sigterm(tmp_path: Path) -> None:
    child = f"trap 'touch {tmp_path}/terminated; exit' TERM; echo ready; while :; do sleep 0.01; done"
    program = f"import subprocess, sys\nsubprocess.Popen(['sh', '-c', {child!r}], start_new_session=True, stdout=subprocess.PIPE).stdout.readline()\n"
    with running_driver([sys.executable, "-c", program + "print('{}', flush=True)\nsys.stdin.readline()"], {}) as driver:
        driver.process.kill()
        driver.process.wait()
    assert (tmp_path / "terminated").exists()


def test_an_ended_program_has_no_memory_to_tell_of() -> None:
    with running_driver(driver_of("sys.stdin.readline()"), {}) as driver:
        assert driver.pss_bytes() > 0
        driver.process.kill()
        driver.process.wait()
        with pytest.raises(RuntimeError, match="ended with -9"):
            driver.pss_bytes()
