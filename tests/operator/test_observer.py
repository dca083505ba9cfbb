from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from stoker_operator.observation import NOTHING_SEEN
from stoker_operator.observer import ReplicaObserver, sum_samples

METRICS = """\
# TYPE stoker_num_requests_running gauge
stoker_num_requests_running{model_name="a"} 2
# TYPE stoker_num_requests_waiting gauge
stoker_num_requests_waiting{model_name="a"} 3
# TYPE stoker_generation_tokens_total counter
stoker_generation_tokens_total{model_name="a"} 40
stoker_generation_tokens_total{model_name="b"} 2
# TYPE stoker_kv_cache_usage_ratio gauge
stoker_kv_cache_usage_ratio{model_name="a"} 0.25
"""
LOADING = b'{"phase": "loading", "progress": 0.5, "seconds": 2, "message": "", "more": 1}'

READY = b'{"phase": "ready"}'
NOT_SERVED = b'{"status": "not ready", "engine": "ready", "reason": "the engine is connecting"}'

MakeObserver = Callable[..., ReplicaObserver]


@pytest.fixture
async def make_observer() -> AsyncIterator[MakeObserver]:
    clients: list[httpx.AsyncClient] = []

    def make(*startups: bytes, metrics: str = METRICS, readiness: httpx.Response | None = None) -> ReplicaObserver:
        """Each of `startups` is answered once."""
        reports = iter(startups)
        answers = {
            "/readyz": readiness or httpx.Response(200),
            "/metrics": httpx.Response(200, text=metrics),
        }

        def answer(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=next(reports)) if request.url.path == "/startupz" else answers[request.url.path]

        clients.append(httpx.AsyncClient(transport=httpx.MockTransport(answer)))
        return ReplicaObserver(clients[-1], "http://api")

    yield make
    for client in clients:
        await client.aclose()


async def test_the_phase_is_read_while_the_engine_starts_and_no_load(make_observer: MakeObserver) -> None:
    seen = await make_observer(LOADING).look()
    assert (seen.startup.phase, seen.startup.progress, seen.is_ready, seen.load) == ("loading", 0.5, False, None)


async def test_the_load_is_read_from_the_first_ready_on(make_observer: MakeObserver) -> None:
    observer = make_observer(READY, LOADING)
    for phase in ("ready", "loading"):
        seen = await observer.look()
        assert seen.startup.phase == phase
        assert seen.load is not None
        assert (seen.load.num_running, seen.load.num_waiting, seen.load.kv_cache_usage) == (2, 3, 0.25)
        assert seen.num_in_flight == 5


async def test_a_replica_is_ready_when_its_api_serves_and_not_before(make_observer: MakeObserver) -> None:
    assert (await make_observer(READY).look()).is_ready
    seen = await make_observer(READY, readiness=httpx.Response(503, content=NOT_SERVED)).look()
    assert (seen.is_ready, seen.obstacle) == (False, "the engine is connecting")


async def test_an_api_that_does_not_answer_is_starting() -> None:
    async with httpx.AsyncClient() as client:
        assert await ReplicaObserver(client, "http://127.0.0.1:1").look() == NOTHING_SEEN


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"phase": 3}'])
async def test_an_answer_that_is_no_report_is_starting(make_observer: MakeObserver, body: bytes) -> None:
    assert await make_observer(body).look() == NOTHING_SEEN


@pytest.mark.parametrize("metrics", ["", "not metrics {", "other_total 3\n"])
async def test_without_numbers_there_is_no_load(make_observer: MakeObserver, metrics: str) -> None:
    assert (await make_observer(READY, metrics=metrics).look()).load is None


def test_samples_are_summed_over_their_labels() -> None:
    assert sum_samples(METRICS)["stoker_generation_tokens_total"] == 42
