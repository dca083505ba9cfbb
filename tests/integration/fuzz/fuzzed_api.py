"""An AsyncLLM in a process of its own, with requests in flight: `fuzzed_api.py <socket dir> <model file>`.

For each line on its input it has a request answered, and says its tokens, who is at each end, and the ids of what is in flight.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from stoker_engine.errors import EngineError
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.tokenizer import load_tokenizer

NUM_VICTIMS = 4
GOOD = SamplingParams(temperature=0, max_tokens=3, output_kind=RequestOutputKind.FINAL_ONLY)


async def be_a_victim(llm: AsyncLLM, number: int) -> None:
    """A request whose outputs are forged; whatever becomes of it, it begins again. The engine goes on with one whose end was forged, but not for long."""
    params = SamplingParams(n=1 + number % 2, max_tokens=200, ignore_eos=True, logprobs=2, prompt_logprobs=1, stop=["zzzz"])
    while True:
        with contextlib.suppress(EngineError):
            async for _ in llm.generate([100 + number] * 5, params, RequestOptions(request_id=f"victim-{number}")):
                pass
        await asyncio.sleep(0.01)


async def answer(llm: AsyncLLM, token_ids: list[int]) -> list[int]:
    while not llm.is_ready:
        await asyncio.sleep(0.005)
    async for output in llm.generate(token_ids, GOOD, RequestOptions(request_id="good")):
        if output.finished:
            return list(output.outputs[0].token_ids)
    raise AssertionError("a stream ended without an end")


async def serve(llm: AsyncLLM) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    victims = [asyncio.create_task(be_a_victim(llm, number)) for number in range(NUM_VICTIMS)]
    while line := await lines.readline():
        token_ids = await asyncio.wait_for(answer(llm, json.loads(line)), 60)
        client = llm._client
        assert client is not None and not any(victim.done() for victim in victims)
        identity = client._handshake.identity
        facts = {"token_ids": token_ids, "incarnation": client.incarnation.hex(), "identity": (identity or b"").hex(), "live": sorted(llm._live)}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


async def main() -> None:
    llm = AsyncLLM(ClientConfig(sys.argv[1]), load_tokenizer(Path(sys.argv[2])), [])
    await llm.start()
    served, failed = asyncio.create_task(serve(llm)), asyncio.create_task(llm.failure())
    done, _ = await asyncio.wait([served, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    sys.exit(1 if failed in done else 0)


asyncio.run(main())
