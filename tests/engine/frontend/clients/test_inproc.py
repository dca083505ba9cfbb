import weakref

import pytest

from stoker_engine.errors import EngineDeadError, EngineNotReadyError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients.inproc import InprocClient
from stoker_engine.inproc_core import EngineCoreInproc
from stoker_engine.protocol import EngineCoreRequest, PauseMode
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import Script, ScriptedExecutor, fake_engine_config


class CountingExecutor(ScriptedExecutor):
    num_shutdowns = 0

    def shutdown(self) -> None:
        super().shutdown()
        self.num_shutdowns += 1


class InterruptedExecutor(ScriptedExecutor):
    def _begin_step(self) -> None:
        raise KeyboardInterrupt


def start(executor: ScriptedExecutor) -> InprocClient:
    return InprocClient(EngineCoreInproc(fake_engine_config("/unused"), executor))


def request(request_id: str = "a", max_tokens: int = 3, **fields: object) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2], SamplingParams(max_tokens=max_tokens), arrival_time=0.0, **fields)


def test_each_call_for_outputs_computes_one_step() -> None:
    client = start(ScriptedExecutor(Script(default_reply=[5, 6, 7])))
    client.add_request(request())
    assert [client.get_output().outputs[0].new_token_ids for _ in range(3)] == [[5], [6], [7]]
    assert client.get_output().outputs == []


@pytest.mark.fault("C8")
def test_a_duplicate_request_is_answered_without_a_step() -> None:
    client = start(ScriptedExecutor(Script()))
    client.add_request(request())
    client.add_request(request())
    (output,) = client.get_output().outputs
    assert (output.finish_reason, output.new_token_ids) == (FinishReason.ERROR, [])


@pytest.mark.fault("B11")
def test_a_request_that_cannot_be_built_fails_alone() -> None:
    client = start(ScriptedExecutor(Script()))
    client.add_request(request("bad", cache_salt="\ud800"))
    client.add_request(request("good"))
    (output,) = client.get_output().outputs
    assert (output.request_id, output.finish_reason) == ("bad", FinishReason.ERROR)
    assert client.get_output().outputs[0].request_id == "good"


def test_a_call_that_waits_computes_what_it_waits_for() -> None:
    client = start(ScriptedExecutor(Script(default_reply=[5])))
    client.add_request(request(max_tokens=3))
    assert len(client.get_output().outputs) == 1
    client.call_utility("pause", PauseMode.WAIT)
    outputs = [output for _ in range(2) for output in client.get_output().outputs]
    assert [output.finish_reason for output in outputs] == [None, FinishReason.LENGTH]


@pytest.mark.property("P55")
@pytest.mark.fault("B13")
def test_a_failed_step_frees_the_device_and_ends_every_call() -> None:
    executor = CountingExecutor(Script(crash_at_step=1))
    client = start(executor)
    client.add_request(request())
    with pytest.raises(EngineDeadError, match="RuntimeError: the script crashes in step 1") as caught:
        client.get_output()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert executor.num_shutdowns == 1
    for call in (client.get_output, lambda: client.add_request(request("b")), lambda: client.call_utility("is_paused")):
        with pytest.raises(EngineDeadError, match="crashes in step 1"):
            call()
    client.abort_requests(["a"])


def test_an_interrupt_in_a_step_ends_the_engine() -> None:
    client = start(InterruptedExecutor(Script()))
    client.add_request(request())
    with pytest.raises(KeyboardInterrupt):
        client.get_output()
    with pytest.raises(EngineDeadError, match="KeyboardInterrupt"):
        client.get_output()


@pytest.mark.fault("B13")
def test_shutdown_frees_the_device_once_and_the_core() -> None:
    executor = CountingExecutor(Script())
    core = EngineCoreInproc(fake_engine_config("/unused"), executor)
    client, gone = InprocClient(core), weakref.ref(core)
    del core
    client.shutdown()
    client.shutdown()
    assert executor.num_shutdowns == 1
    assert gone() is None
    with pytest.raises(EngineNotReadyError):
        client.get_output()


@pytest.mark.fault("A5", "B13")
def test_a_core_that_cannot_be_built_frees_the_device() -> None:
    executor = CountingExecutor(Script(load_error="no such tensor"))
    with pytest.raises(Exception, match="no such tensor"):
        start(executor)
    assert executor.num_shutdowns == 1
