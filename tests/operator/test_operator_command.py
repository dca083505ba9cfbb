import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--workers=0", "--workers: Expected `int` >= 1"),
        ("--resync=never", "--resync"),
        ("--namespace=A_b", "--namespace"),
        ("--no-such-flag", "--help lists the flags"),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(flag: str, words: str):
    done = subprocess.run([sys.executable, "-m", "stoker_operator", "operator", flag], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and words.replace("`", "") in done.stderr.replace("`", "")


def test_a_kubeconfig_that_is_not_there_is_told_with_what_to_do():
    environment = {"PATH": "/usr/bin", "KUBECONFIG": "/nowhere"}
    command = [sys.executable, "-m", "stoker_operator", "operator", "--health-host=127.0.0.1", "--health-port=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1
    assert "set KUBECONFIG" in done.stderr
