import pytest

from stoker_gateway.http.traces import Traces, traces_url


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "stoker-api"),
        ({"OTEL_SERVICE_NAME": ""}, "stoker-api"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs,team=a"}, "theirs"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs", "OTEL_SERVICE_NAME": "mine"}, "mine"),
    ],
)
def test_the_services_name_is_what_the_environment_says(variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {**variables, "POD_NAME": "pod"}.items():
        monkeypatch.setenv(variable, value)
    tracing = Traces("http://127.0.0.1:9", "stoker-api")
    attributes = tracing._provider.resource.attributes
    tracing.close()
    assert (attributes["service.name"], attributes["k8s.pod.name"]) == (name, "pod")
    assert attributes.get("team") == ("a" if "team" in variables.get("OTEL_RESOURCE_ATTRIBUTES", "") else None)


def test_an_endpoint_without_a_path_gets_that_of_traces() -> None:
    assert traces_url("http://a:4318") == traces_url("http://a:4318/") == "http://a:4318/v1/traces"
    assert traces_url("https://a/otlp/x") == "https://a/otlp/x"
