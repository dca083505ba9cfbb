"""How a container ended: its exit code, the words its program left, the kubelet's otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from stoker_engine.termination import TerminationMessage
from stoker_operator.names import ENGINE
from stoker_operator.status.objects import Container, Pod, Terminated
from stoker_operator.status.text import last_line, one_line, timestamp

SIGKILLED = 137
OOM_KILLED = "OOMKilled"
"""The kubelet's reason, and its only word on why a container was killed."""


@dataclass(frozen=True, slots=True)
class End:
    """`words` is None where the program left none of ours; `terminated.message` may be the tail of its log then."""

    pod: str
    container: str
    terminated: Terminated
    words: TerminationMessage | None

    @property
    def reason(self) -> str:
        """The program's own reason, unless the kernel killed it: then it knew of nothing."""
        if self.words is None or self.terminated.reason == OOM_KILLED:
            return self.terminated.reason or "Error"
        return self.words.reason

    @property
    def message(self) -> str:
        if self.words is None:
            return last_line(self.terminated.message)
        return one_line(self.words.last_error)

    @property
    def time(self) -> str:
        """As a status has it: times of this form sort as text. Empty where it is not known."""
        return "" if self.terminated.finished_at is None else timestamp(self.terminated.finished_at)

    @property
    def description(self) -> str:
        words = f": {self.message}" if self.message else ""
        return f"container {self.container} ended with exit code {self.terminated.exit_code} ({self.reason}){words}"


def ends_of(pod: Pod, container: Container) -> Iterator[End]:
    """The end that the container is in, and the one before its last restart."""
    for terminated in (container.state.terminated, container.last_state.terminated):
        if terminated is not None:
            yield End(pod.name, container.name, terminated, _words(terminated.message))


def failures_of(pod: Pod) -> Iterator[End]:
    """Ends that should not have been. A container that works until the pod is deleted may not end at all before; a preparing one may, with 0."""
    works = {each.name for each in pod.status.container_statuses} | {ENGINE}
    for container in pod.containers:
        for end in ends_of(pod, container):
            if end.terminated.exit_code != 0 or container.name in works:
                yield end


def _words(message: str) -> TerminationMessage | None:
    try:
        return msgspec.json.decode(message, type=TerminationMessage)
    except (msgspec.MsgspecError, RecursionError):
        return None
