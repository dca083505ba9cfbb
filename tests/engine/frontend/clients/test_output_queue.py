import pytest

from stoker_engine.errors import EngineDeadError
from stoker_engine.frontend.clients.output_queue import OutputQueue
from stoker_engine.protocol import EngineCoreOutputs


async def test_an_end_comes_behind_the_last_outputs_and_is_held_until_it_is_taken() -> None:
    outputs = OutputQueue()
    last = EngineCoreOutputs(timestamp=1.0)
    outputs.put(last)
    outputs.put_end(EngineDeadError("gone"))
    assert outputs.holds_an_end
    assert await outputs.get() == last
    assert outputs.holds_an_end
    with pytest.raises(EngineDeadError, match="gone"):
        await outputs.get()
    assert not outputs.holds_an_end
