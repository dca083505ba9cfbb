"""Responses that are made after their request has been answered."""

import asyncio
import logging
from dataclasses import dataclass

from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.frontend.renderer import Prompt
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.responses.conversation import own_names
from stoker_gateway.api.responses.room import Room
from stoker_gateway.api.responses.run import ResponseRun
from stoker_gateway.api.responses.store import EventLog, StoredResponse
from stoker_gateway.api.state import ApiState

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Work:
    """What the engine is asked for, and how its answer is read. `has_events`: they are kept, to be followed while they come."""

    prompt: Prompt
    plan: ChatPlan
    options: RequestOptions
    has_events: bool

    @property
    def params(self) -> SamplingParams:
        return self.plan.params


async def start_in_background(state: ApiState, stored: StoredResponse, work: Work) -> None:
    """What is wrong with the request is said at once. Raises ApiError (400) where it could never be kept, (429) where too much is being made in the
    background, ParameterError, and QueueFullError where too much waits.
    """
    with own_names():
        request = await state.engine.process(work.prompt, work.params, work.options)
    stored.events = EventLog() if work.has_events else None
    room = Room(state.responses, stored, work.params)
    room.reserve()
    stored.task = asyncio.create_task(_make(state, stored, work, room, request.prompt_token_ids))
    stored.task.add_done_callback(_log_fault)


async def cancel(stored: StoredResponse) -> None:
    """Ends it, and returns when it is over; one that is over stays as it is."""
    if stored.task is not None and not stored.task.done():
        stored.task.cancel()
        await asyncio.wait([stored.task])


async def _make(state: ApiState, stored: StoredResponse, work: Work, room: Room, prompt_token_ids: list[int]) -> None:
    """A draining process waits for it, as for a request that is being answered."""
    with state.drain.in_flight():
        run = ResponseRun(stored, state.responses, work.plan)
        await run.in_background(room.charged(state.engine.generate(prompt_token_ids, work.params, work.options)))


def _log_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a response failed in the background", exc_info=error)
