from stoker_gateway.api.tracing import traces_url


def test_an_endpoint_without_a_path_gets_that_of_traces() -> None:
    assert traces_url("http://a:4318") == traces_url("http://a:4318/") == "http://a:4318/v1/traces"
    assert traces_url("https://a/otlp/x") == "https://a/otlp/x"
