import signal
from typing import Any

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_a_request_is_a_span_between_that_of_its_client_and_that_of_its_replica(start_replica: Any, start: Any, collector: Any) -> None:
    replica = await start_replica()
    gateway = await start(replica, otlp_endpoint=collector.url)
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "a=1", "X-Request-Id": "mine"}
    await gateway.client.post("/v1/completions", json={"model": "m"}, headers=headers)
    await gateway.client.post("/v1/completions", json={"model": "nobody"})
    await gateway.client.get("/v1/models")
    gateway.process.send_signal(signal.SIGTERM)
    assert await gateway.process.wait() == 0
    served, refused = collector.spans()
    (request,) = replica.requests
    assert request.header("traceparent") == f"00-{TRACE_ID}-{served.span_id.hex()}-01" and request.header("tracestate") == "a=1"
    assert (served.name, served.trace_id.hex(), served.parent_span_id.hex()) == ("POST /v1/completions", TRACE_ID, PARENT_ID)
    attributes = collector.attributes(served.attributes)
    assert attributes.pop("stoker.time_to_first_byte") > 0
    assert attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "gen_ai.request.model": "m",
        "stoker.request.id": "mine",
        "stoker.endpoint": str(replica.address),
        "stoker.attempts": 1,
    }
    wrong = collector.attributes(refused.attributes)
    assert (wrong["http.response.status_code"], wrong["error.type"], refused.parent_span_id) == (404, "model_not_found", b"")
    (resource,) = {collector.attributes(request.resource_spans[0].resource.attributes)["service.name"] for request in collector.requests}
    assert resource == "stoker-gateway"


async def test_without_a_collector_a_clients_trace_goes_on_as_it_came(start_replica: Any, start: Any) -> None:
    replica = await start_replica()
    gateway = await start(replica)
    parent = f"00-{TRACE_ID}-{PARENT_ID}-01"
    await gateway.client.post("/v1/completions", json={"model": "m"}, headers={"traceparent": parent})
    assert [request.header("traceparent") for request in replica.requests] == [parent]
