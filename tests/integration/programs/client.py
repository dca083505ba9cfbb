"""An api's engine client in a process of its own: `client.py <socket dir> <number of requests>`.

Sends its requests and says "sent"; says "ended" with how each of them ended; then sends another and says "served" with its tokens.
"""

import asyncio
import json
import sys
import time
from typing import Any

from stoker_engine.errors import EngineDeadError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams

PROMPT_LENGTH = 8000


async def wait_until_ready(client: AsyncMPClient) -> None:
    while not client.is_ready:
        await asyncio.sleep(0.005)


def say(word: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"word": word, **facts}) + "\n")
    sys.stdout.flush()


async def main(socket_dir: str, num_requests: int) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir, hang_seconds=600))
    await wait_until_ready(client)
    live = {str(number) for number in range(num_requests)}
    for request_id in live:
        # The answer to each has a megabyte of log probabilities.
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=20)
        await client.add_request(EngineCoreRequest(request_id, [int(request_id)] * PROMPT_LENGTH, params, time.time()))
    num_finished = 0
    try:
        first = await client.get_output()
        ended = {output.request_id for output in first.outputs if output.finish_reason is not None}
        num_finished, live = len(ended), live - ended
        say("sent")
        while live:
            ended = {output.request_id for output in (await client.get_output()).outputs if output.finish_reason is not None}
            num_finished += len(live & ended)
            live -= ended
        say("ended", finished=num_finished, failed=0, error="")
    except EngineDeadError as error:
        say("ended", finished=num_finished, failed=len(live), error=str(error))
    await wait_until_ready(client)
    await client.add_request(EngineCoreRequest("good", [1, 2, 3], SamplingParams(temperature=0, max_tokens=2), time.time()))
    token_ids: list[int] = []
    while len(token_ids) < 2:
        for output in (await client.get_output()).outputs:
            token_ids += output.new_token_ids if output.request_id == "good" else []
    say("served", token_ids=token_ids)
    await client.shutdown()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
