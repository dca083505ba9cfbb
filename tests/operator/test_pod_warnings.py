from typing import Any

from stoker_operator.pod_warnings import has_new_kill, is_silent


def _pod(*containers: dict[str, Any], node: str = "node0", **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", **metadata}, "spec": {"nodeName": node} if node else {}, "status": {"containerStatuses": list(containers)}}


WAITING = {"name": "api", "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
RUNNING = {"name": "api", "ready": False, "state": {"running": {}}}
KILLED = {"name": "engine", "ready": False, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:20Z"}}}


def test_a_pod_on_a_node_of_which_nothing_runs_leaves_it_open_why():
    assert is_silent(_pod(WAITING))


def test_a_pod_whose_engine_was_killed_leaves_it_open_by_whom():
    assert is_silent(_pod(RUNNING, KILLED))


def test_no_events_are_read_for_a_pod_that_tells_itself_how_it_is():
    assert not is_silent(_pod(WAITING, node=""))
    assert not is_silent(_pod(RUNNING))
    assert not is_silent(_pod(WAITING, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not is_silent(_pod({"name": "api", "ready": True, "state": {"running": {}}}))


def test_a_kill_that_is_not_told_yet_is_asked_after_even_if_the_pod_is_ready_again():
    ready = _pod({**KILLED, "ready": True})
    assert not is_silent(ready) and has_new_kill(ready, "") and has_new_kill(ready, "2026-01-01T00:00:19Z")
    assert not has_new_kill(ready, "2026-01-01T00:00:20Z")
    assert not has_new_kill(_pod({**KILLED, "ready": True}, deletionTimestamp="2026-01-01T00:00:30Z"), "")
