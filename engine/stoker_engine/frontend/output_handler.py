"""Takes an engine's messages to the collectors of their requests, without keeping the event loop from its other work."""

import asyncio
import time

from stoker_engine.errors import EngineDeadError
from stoker_engine.frontend.clients.base import AsyncEngineCoreClient
from stoker_engine.frontend.output_processor import OutputProcessor, ProcessedOutputs
from stoker_engine.frontend.stat_loggers import StatLoggerManager
from stoker_engine.protocol import EngineCoreOutputs

MAX_TURN_SECONDS = 0.0005
"""However many requests a message is about, the loop turns after this long, for about 100 outputs. What these wake takes far longer than they did: with
256 streams of 60 µs an output, a turn of the loop takes 4 ms, and 9 to 20 ms where outputs are handed out for 2 ms at a time."""
_OUTPUTS_PER_LOOK = 8
"""Outputs between two looks at the clock: 0.1 ms."""


class OutputHandler:
    """Runs until it is cancelled. An engine's end fails its requests; the next one's are handled as before."""

    def __init__(self, client: AsyncEngineCoreClient, output_processor: OutputProcessor, stat_loggers: StatLoggerManager) -> None:
        self._client = client
        self._output_processor = output_processor
        self._stat_loggers = stat_loggers
        self._turn_ends = 0.0

    async def run(self) -> None:
        while True:
            try:
                outputs = await self._client.get_output()
            except EngineDeadError as error:
                self._output_processor.fail_all_requests(error)
                self._stat_loggers.record(None, self._output_processor.take_iteration_stats())
                continue
            processed = await self._process(outputs)
            # Before any consumer of the message's last outputs runs: who has an answer finds it counted.
            self._stat_loggers.record(outputs.scheduler_stats, processed.iteration_stats)
            await self._client.abort_requests(processed.request_ids_to_abort)
            await self._end_turn_in_time()

    async def _process(self, message: EngineCoreOutputs) -> ProcessedOutputs:
        processed = self._output_processor.begin_message()
        for start in range(0, len(message.outputs), _OUTPUTS_PER_LOOK):
            if start:
                await self._end_turn_in_time()
            self._output_processor.process_some(message.outputs[start : start + _OUTPUTS_PER_LOOK], message.timestamp, processed)
        return processed

    async def _end_turn_in_time(self) -> None:
        """A backlog never suspends by itself: what is there is taken at once."""
        if time.perf_counter() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = time.perf_counter() + MAX_TURN_SECONDS
