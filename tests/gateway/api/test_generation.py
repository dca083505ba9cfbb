from starlette.datastructures import Headers

from stoker_gateway.api.generation import request_options
from stoker_gateway.openai.request import CompletionRequest


def trace_headers(**headers: str) -> dict[str, str] | None:
    return request_options(CompletionRequest(model="m", prompt="p"), Headers(headers), "id").trace_headers


def test_trace_headers_travel_with_the_request() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert trace_headers(traceparent=parent, tracestate="a=1", cookie="secret") == {"traceparent": parent, "tracestate": "a=1"}


def test_trace_headers_that_are_absent_or_too_long_do_not() -> None:
    assert trace_headers() is None
    assert trace_headers(traceparent="", tracestate="a" * 513) is None
