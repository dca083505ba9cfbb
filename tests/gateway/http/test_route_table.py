import pytest

from stoker_gateway.http.route_table import RouteTable
from stoker_gateway.openai.errors import ApiError

TABLE = RouteTable(
    (
        ("GET", "/models", "list"),
        ("GET", "/models/{model:path}", "get"),
        ("POST", "/responses", "create"),
        ("GET", "/responses/{response_id}", "show"),
        ("DELETE", "/responses/{response_id}", "delete"),
    )
)


@pytest.mark.parametrize(
    ("method", "path", "endpoint", "template", "parameters"),
    [
        ("GET", "/models", "list", "/models", {}),
        ("HEAD", "/models", "list", "/models", {}),
        ("GET", "/models/org/name", "get", "/models/{model}", {"model": "org/name"}),
        ("POST", "/responses", "create", "/responses", {}),
        ("DELETE", "/responses/a", "delete", "/responses/{response_id}", {"response_id": "a"}),
        ("HEAD", "/responses/b", "show", "/responses/{response_id}", {"response_id": "b"}),
    ],
)
def test_a_method_and_a_path_have_one_endpoint(method: str, path: str, endpoint: str, template: str, parameters: dict[str, str]) -> None:
    found = TABLE.find(method, path)
    assert (found.endpoint, found.template, found.parameters) == (endpoint, template, parameters)


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("POST", "/models", "GET, HEAD"), ("PUT", "/responses/a", "DELETE, GET, HEAD"), ("GET", "/responses", "POST")]
)
def test_a_method_that_a_path_does_not_have_is_told_those_that_it_has(method: str, path: str, allowed: str) -> None:
    with pytest.raises(ApiError) as caught:
        TABLE.find(method, path)
    assert (caught.value.status, caught.value.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/", "/model", "/models/", "/responses/a/b", "/responses/"])
def test_a_path_that_there_is_none_of_is_not_found(path: str) -> None:
    with pytest.raises(ApiError) as caught:
        RouteTable((("GET", "/models", 1), ("GET", "/responses/{response_id}", 2))).find("GET", path)
    assert caught.value.status == 404


def test_the_operations_are_those_that_were_given() -> None:
    assert TABLE.operations == (
        ("DELETE", "/responses/{response_id}"),
        ("GET", "/models"),
        ("GET", "/models/{model}"),
        ("GET", "/responses/{response_id}"),
        ("POST", "/responses"),
    )
