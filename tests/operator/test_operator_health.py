import time
import urllib.error
import urllib.request

import pytest

from stoker_operator.errors import LocalError
from stoker_operator.operator_health import HealthServer, why_not_alive
from stoker_operator.progress import Phase, Progress

RESYNC = 60.0


def _leading() -> Progress:
    return Progress(phase=Phase.LEADING)


def test_an_operator_at_work_or_with_nothing_to_do_is_alive():
    assert why_not_alive(_leading(), RESYNC) is None
    busy = _leading()
    busy.tick(queue_age=500.0, work_age=1.0)
    busy.done()
    assert why_not_alive(busy, RESYNC) is None


def test_a_hanging_event_loop_is_told():
    progress = _leading()
    progress.loop_tick = time.monotonic() - 40
    assert "event loop has not run for 40 s" in str(why_not_alive(progress, RESYNC))


def test_workers_that_finish_nothing_while_keys_wait_are_told():
    progress = _leading()
    progress.tick(queue_age=130.0, work_age=0.0)
    progress.last_done = time.monotonic() - 125
    assert "no worker finished one for 125 s" in str(why_not_alive(progress, RESYNC))


def test_an_api_server_that_tells_nothing_is_told_by_the_leader_alone():
    progress = _leading()
    progress.last_seen = time.monotonic() - 250
    assert "told nothing for 250 s" in str(why_not_alive(progress, RESYNC))
    progress.phase = Phase.STANDBY
    assert why_not_alive(progress, RESYNC) is None


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_standby_is_alive_and_ready_and_says_that_it_is_one():
    progress = Progress(phase=Phase.STANDBY)
    with HealthServer("127.0.0.1", 0, progress, RESYNC) as server:
        assert _get(server.port, "/livez") == (200, "ok")
        assert _get(server.port, "/readyz") == (200, "standby: waiting for the Lease")
        progress.phase = Phase.LISTING
        assert _get(server.port, "/readyz") == (200, "leading: listing everything for the first time")
        progress.phase = Phase.WAITING_FOR_CRD
        status, text = _get(server.port, "/readyz")
        assert status == 503 and "stoker crd" in text
        status, text = _get(server.port, "/metrics")
        assert status == 200 and "stoker_operator_queue_depth" in text
        assert _get(server.port, "/other")[0] == 404
        with pytest.raises(LocalError, match=f"{server.port}.*choose another --health-port"):
            HealthServer("127.0.0.1", server.port, progress, RESYNC)
