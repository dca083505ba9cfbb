"""What became of answers that might have called tools: counted when the HTTP request has ended, shown on both pages."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.openai.request import ChatCompletionRequest

REQUEST_TYPES = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
LABELS = ("mode", "outcome", "request_type")


class ToolMetrics:
    """By mode (auto, required, named), outcome (called, answered, or cut inside a call) and the endpoint."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def observe(self, record: RequestRecord) -> None:
        request = record.request
        if not isinstance(request, ChatCompletionRequest) or not request.tools or not record.tool_outcomes:
            return
        for outcome in record.tool_outcomes:
            self.counts[_mode(request), outcome, REQUEST_TYPES.get(record.route, "other")] += 1


class ToolCollector(Collector):
    """The counts under the names of one page."""

    def __init__(self, metrics: ToolMetrics, prefix: str, labels: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._prefix = prefix
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        name = f"{self._prefix}tool_call_parser_invocations"
        family = CounterMetricFamily(name, "Answers that were read for calls of tools, by what they were.", labels=[*self._labels, *LABELS])
        for values, count in self._metrics.counts.items():
            family.add_metric([*self._labels.values(), *values], count)
        yield family


def _mode(request: ChatCompletionRequest) -> str:
    choice = request.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return "named"
