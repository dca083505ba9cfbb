import asyncio
from contextlib import ExitStack

import pytest

from stoker_gateway.http.drain import Drain, StopStage


async def everything_can_finish() -> bool:
    return True


async def abort_nothing() -> None:
    return None


async def test_nothing_in_flight_ends_a_drain_at_once() -> None:
    drain = Drain(timeout_seconds=60)
    drain.request_stop()
    report = await drain.run(everything_can_finish, abort_nothing)
    assert (report.in_flight_at_start, report.aborted) == (0, 0) and report.seconds < 60


async def test_a_drain_waits_for_what_is_in_flight() -> None:
    drain = Drain(timeout_seconds=60)
    with drain.in_flight():
        run = asyncio.create_task(drain.run(everything_can_finish, abort_nothing))
        drain.request_stop()
        await asyncio.sleep(0)
        assert drain.is_draining and not run.done()
    assert (await run).completed == 1


async def test_a_request_that_begins_as_the_last_one_ends_is_waited_for() -> None:
    drain = Drain(timeout_seconds=60)
    with drain.in_flight():
        run = asyncio.create_task(drain.run(everything_can_finish, abort_nothing))
        drain.request_stop()
        await asyncio.sleep(0.01)
    with drain.in_flight():
        await asyncio.sleep(0.01)
        assert not run.done()
    report = await run
    assert (report.in_flight_at_start, report.aborted) == (2, 0)


async def test_a_second_stop_aborts_what_is_in_flight() -> None:
    drain = Drain(timeout_seconds=60)
    with ExitStack() as in_flight:
        in_flight.enter_context(drain.in_flight())
        in_flight.enter_context(drain.in_flight())

        async def abort_all() -> None:
            in_flight.close()

        run = asyncio.create_task(drain.run(everything_can_finish, abort_all))
        assert [drain.request_stop(), drain.request_stop(), drain.request_stop()] == [StopStage.DRAINING, StopStage.ABORTING, StopStage.KILLED]
        report = await run
    assert (report.in_flight_at_start, report.aborted, report.completed) == (2, 2, 0)


@pytest.mark.fault("F7")
async def test_a_request_that_fails_is_no_longer_in_flight() -> None:
    drain = Drain(timeout_seconds=60)
    try:
        with drain.in_flight():
            raise RuntimeError
    except RuntimeError:
        assert drain.num_in_flight == 0
