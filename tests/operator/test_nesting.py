import subprocess
import sys

from stoker_operator.nesting import MAX_JSON_DEPTH, MAX_SPEC_DEPTH, is_too_deep

READ_AND_WRITTEN = """
import json, sys
import msgspec
from stoker_operator.nesting import take_deep_objects
take_deep_objects()
body = '{"a":' * int(sys.argv[1]) + "1" + "}" * int(sys.argv[1])
kept = msgspec.json.encode(msgspec.json.decode(body))
print(json.loads(body) == json.loads(kept))
"""


def _nested(depth: int) -> object:
    value: object = 1
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


def test_an_object_as_deep_as_the_api_server_takes_is_read_and_written():
    done = subprocess.run([sys.executable, "-c", READ_AND_WRITTEN, str(MAX_JSON_DEPTH)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-1000:]


def test_what_no_pod_is_nested_as_deep_as_is_too_deep():
    assert [is_too_deep(_nested(depth)) for depth in (0, MAX_SPEC_DEPTH, MAX_SPEC_DEPTH + 1, 50_000)] == [False, False, True, True]
