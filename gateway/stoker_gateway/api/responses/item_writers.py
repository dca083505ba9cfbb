"""Writes one item of a response's output: the events of its beginning, its pieces and its end, and the item that it becomes."""

from collections.abc import Iterator
from typing import Protocol

from stoker_gateway.api.responses.items import new_id
from stoker_gateway.openai.protocol import TokenLogprob
from stoker_gateway.openai.responses import events
from stoker_gateway.openai.responses.protocol import FunctionCallItem, ItemStatus, OutputItem, OutputMessage, OutputText, ReasoningItem, ReasoningText


class ItemWriter(Protocol):
    """What an event holds is never changed afterwards."""

    def begin(self) -> Iterator[events.Event]: ...

    def end(self, status: ItemStatus) -> Iterator[events.Event]:
        """The last of them has the item."""


class MessageWriter:
    def __init__(self, output_index: int) -> None:
        self._id = new_id("msg")
        self._index = output_index
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    def begin(self) -> Iterator[events.Event]:
        yield events.ItemAdded(output_index=self._index, item=OutputMessage(id=self._id))
        yield events.PartAdded(item_id=self._id, output_index=self._index, content_index=0, part=OutputText())

    def write(self, text: str, logprobs: list[TokenLogprob]) -> Iterator[events.Event]:
        self._texts.append(text)
        self._logprobs += logprobs
        yield events.TextDelta(item_id=self._id, output_index=self._index, content_index=0, delta=text, logprobs=logprobs)

    def end(self, status: ItemStatus) -> Iterator[events.Event]:
        part = OutputText(text="".join(self._texts), logprobs=self._logprobs)
        yield events.TextDone(item_id=self._id, output_index=self._index, content_index=0, text=part.text, logprobs=part.logprobs)
        yield events.PartDone(item_id=self._id, output_index=self._index, content_index=0, part=part)
        yield events.ItemDone(output_index=self._index, item=OutputMessage(id=self._id, status=status, content=[part]))


class ReasoningWriter:
    def __init__(self, output_index: int) -> None:
        self._id = new_id("rs")
        self._index = output_index
        self._texts: list[str] = []

    def begin(self) -> Iterator[events.Event]:
        yield events.ItemAdded(output_index=self._index, item=ReasoningItem(id=self._id))
        yield events.PartAdded(item_id=self._id, output_index=self._index, content_index=0, part=ReasoningText(""))

    def write(self, text: str) -> Iterator[events.Event]:
        self._texts.append(text)
        yield events.ReasoningDelta(item_id=self._id, output_index=self._index, content_index=0, delta=text)

    def end(self, status: ItemStatus) -> Iterator[events.Event]:
        part = ReasoningText("".join(self._texts))
        yield events.ReasoningDone(item_id=self._id, output_index=self._index, content_index=0, text=part.text)
        yield events.PartDone(item_id=self._id, output_index=self._index, content_index=0, part=part)
        yield events.ItemDone(output_index=self._index, item=ReasoningItem(id=self._id, content=[part], status=status))


class CallWriter:
    def __init__(self, output_index: int, call_id: str, name: str) -> None:
        self._id = new_id("fc")
        self._index = output_index
        self._call_id = call_id
        self._name = name
        self._texts: list[str] = []

    def begin(self) -> Iterator[events.Event]:
        yield events.ItemAdded(output_index=self._index, item=self._item("", "in_progress"))

    def write(self, text: str) -> Iterator[events.Event]:
        self._texts.append(text)
        yield events.ArgumentsDelta(item_id=self._id, output_index=self._index, delta=text)

    def end(self, status: ItemStatus) -> Iterator[events.Event]:
        arguments = "".join(self._texts)
        yield events.ArgumentsDone(item_id=self._id, output_index=self._index, name=self._name, arguments=arguments)
        yield events.ItemDone(output_index=self._index, item=self._item(arguments, status))

    def _item(self, arguments: str, status: ItemStatus) -> OutputItem:
        return FunctionCallItem(id=self._id, call_id=self._call_id, name=self._name, arguments=arguments, status=status)
