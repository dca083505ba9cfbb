"""Makes one response out of the engine's outputs, whole or as events, and keeps it when it is over."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from stoker_engine.errors import EngineError, EngineGenerateError
from stoker_engine.outputs import RequestOutput
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.generation import last_output, off_loop_if_long
from stoker_gateway.api.responses.builder import ResponseBuilder
from stoker_gateway.api.responses.conversation import own_names
from stoker_gateway.api.responses.store import EventLog, ResponseStore, StoredResponse, conversation_bytes
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.responses.events import Event
from stoker_gateway.openai.responses.protocol import ConversationItem, InputMessage, OutputMessage, OutputText, Response
from stoker_gateway.openai.streaming import named_event

Outputs = AsyncGenerator[RequestOutput]


class ResponseRun:
    """`stored` is what is kept in `store`, if the request wants that."""

    def __init__(self, stored: StoredResponse, store: ResponseStore, plan: ChatPlan) -> None:
        self._stored = stored
        self._store = store
        self._builder = ResponseBuilder(stored.response, plan)

    async def whole(self, outputs: Outputs) -> Response:
        """Raises EngineError where there is no answer."""
        async with aclosing(outputs):
            with own_names():
                output = await last_output(outputs)
        size = sum(len(choice.text) for choice in output.outputs)
        self._ended(await off_loop_if_long(size, lambda: list(self._builder.add(output))))
        return self._stored.response

    async def stream(self, outputs: Outputs) -> AsyncGenerator[bytes]:
        """The events of one output go together. Raises EngineError before the first; a later one is the last event."""
        async with aclosing(self._steps(outputs)) as steps:
            async for step in steps:
                yield b"".join(map(_encoded, step))

    async def in_background(self, outputs: Outputs) -> None:
        """An error, whenever it comes, is the response's own. Where this is cancelled, what there is stays."""
        log = self._stored.events or EventLog()
        try:
            _write(log, self._builder.create())
            async with aclosing(self._steps(outputs)) as steps:
                async for step in steps:
                    _write(log, step)
        except EngineError as error:
            _write(log, self._builder.fail(error))
        finally:
            if not self._stored.is_over:
                self._builder.cancel()
            log.end()
            self._keep()

    async def _steps(self, outputs: Outputs) -> AsyncGenerator[list[Event]]:
        """The events of each output. An error after the first of them is the last one; an answer that is whole stays so."""
        has_begun = False
        try:
            with own_names():
                async for output in outputs:
                    step = self._ended(list(self._builder.add(output)))
                    has_begun = True
                    yield step
            if not self._stored.is_over:
                raise EngineGenerateError("The request ended without an answer.")
        except EngineError as error:
            if not has_begun:
                raise
            if not self._stored.is_over:
                yield self._ended(list(self._builder.fail(error)))
        finally:
            await outputs.aclose()

    def _ended(self, step: list[Event]) -> list[Event]:
        """The response is kept before anybody reads that it is over, except in the background, whose events are kept with it."""
        if self._stored.is_over and not self._stored.response.background:
            self._keep()
        return step

    def _keep(self) -> None:
        """What is over takes the place of what was on its way. It may have been deleted meanwhile."""
        response = self._stored.response
        if not response.store or (response.background and self._store.find(response.id) is not self._stored):
            return
        self._store.remove(response.id)
        self._stored.conversation = [*self._stored.conversation, *_answer(response)]
        log = self._stored.events
        self._stored.num_bytes = len(encode(response)) + conversation_bytes(self._stored.conversation) + (0 if log is None else log.num_bytes)
        self._store.put(self._stored)


def _answer(response: Response) -> Iterable[ConversationItem]:
    """What the model has said, as a later request's conversation has it: without log probabilities."""
    for item in response.output:
        if isinstance(item, OutputMessage):
            yield InputMessage(id=item.id, role="assistant", content=[OutputText(text=part.text) for part in item.content])
        else:
            yield item


def _write(log: EventLog, step: Iterable[Event]) -> None:
    for event in step:
        log.add(_encoded(event))


def _encoded(event: Event) -> bytes:
    return named_event(str(event.__struct_config__.tag), encode(event))
