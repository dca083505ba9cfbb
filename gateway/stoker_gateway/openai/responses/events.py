"""The events of a streamed response. Each has its `type` and a `sequence_number`: 0, 1, 2 … over the whole stream."""

import msgspec

from stoker_gateway.openai.protocol import TokenLogprob
from stoker_gateway.openai.responses.protocol import OutputItem, OutputText, ReasoningText, Response


class Event(msgspec.Struct, kw_only=True, tag_field="type"):
    sequence_number: int = 0


class LifecycleEvent(Event):
    response: Response


class Queued(LifecycleEvent, tag="response.queued"): ...


class Created(LifecycleEvent, tag="response.created"): ...


class InProgress(LifecycleEvent, tag="response.in_progress"): ...


class Completed(LifecycleEvent, tag="response.completed"): ...


class Incomplete(LifecycleEvent, tag="response.incomplete"): ...


class Failed(LifecycleEvent, tag="response.failed"): ...


class ItemEvent(Event, kw_only=True):
    output_index: int
    item: OutputItem


class ItemAdded(ItemEvent, tag="response.output_item.added"): ...


class ItemDone(ItemEvent, tag="response.output_item.done"): ...


class PartEvent(Event, kw_only=True):
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class PartAdded(PartEvent, tag="response.content_part.added"): ...


class PartDone(PartEvent, tag="response.content_part.done"): ...


class TextDelta(Event, kw_only=True, tag="response.output_text.delta"):
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[TokenLogprob]


class TextDone(Event, kw_only=True, tag="response.output_text.done"):
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[TokenLogprob]


class ReasoningDelta(Event, kw_only=True, tag="response.reasoning_text.delta"):
    item_id: str
    output_index: int
    content_index: int
    delta: str


class ReasoningDone(Event, kw_only=True, tag="response.reasoning_text.done"):
    item_id: str
    output_index: int
    content_index: int
    text: str


class ArgumentsDelta(Event, kw_only=True, tag="response.function_call_arguments.delta"):
    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Event, kw_only=True, tag="response.function_call_arguments.done"):
    item_id: str
    output_index: int
    name: str
    arguments: str
