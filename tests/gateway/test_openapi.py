"""The OpenAPI document says what the api does; schemathesis, in a virtual environment of its own, tries to show the contrary."""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stoker_engine.testing import Script
from stoker_gateway.api.api_keys import OPEN_PATHS
from stoker_gateway.api.app import ROUTES
from stoker_gateway.api.engine_control import ENGINE_CONTROL_ROUTES
from stoker_gateway.api.openapi.document import openapi_document
from stoker_gateway.api.openapi.operations import OPERATIONS

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
CASES = 5000
EXAMPLES_PER_OPERATION = CASES // 12
"""Of 22 operations ten have nothing to vary."""


def refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {name for key, item in value.items() for name in ([item] if key == "$ref" else refs(item))}
    return {name for item in value for name in refs(item)} if isinstance(value, list) else set()


@pytest.fixture(scope="module")
def document(api: Any) -> dict[str, Any]:
    return api.client.get("/openapi.json").json()


def test_every_endpoint_is_described(document: dict[str, Any]) -> None:
    served = {(method, path.replace(":path", "")) for method, path, _ in ROUTES}
    assert {(method.upper(), path) for path, item in document["paths"].items() for method in item} == served
    assert set(OPERATIONS) == served | {(method, path) for method, path, _ in ENGINE_CONTROL_ROUTES}


def test_engine_control_is_described_where_it_is_served() -> None:
    paths = openapi_document([(method, path) for method, path, _ in (*ROUTES, *ENGINE_CONTROL_ROUTES)], ["m"])["paths"]
    assert [parameter["name"] for parameter in paths["/pause"]["post"]["parameters"]] == ["mode", "clear_cache"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    names = {name.removeprefix("#/components/schemas/") for name in refs(document)}
    assert names <= set(document["components"]["schemas"]) and all(re.fullmatch(r"\w+|[\w.]+\.InputMessage", name) for name in names)
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS.values() if operation.body is not None], ids=lambda operation: operation.summary)
def test_a_request_has_every_field_that_is_honored_ignored_or_refused(document: dict[str, Any], operation: Any) -> None:
    schema = document["components"]["schemas"][operation.body.__name__]
    assert set(schema["properties"]) == {*operation.body.__struct_fields__, *operation.rules.ignored, *operation.rules.refused}
    assert schema["additionalProperties"] is False and schema["properties"]["model"]["enum"][:2] == ["m", "m-alias"]


def test_errors_are_described_in_the_shape_of_their_api(document: dict[str, Any]) -> None:
    for path, shape in (("/v1/messages", "MessagesErrorBody"), ("/v1/chat/completions", "ErrorBody")):
        responses = document["paths"][path]["post"]["responses"]
        assert {"200", "400", "401", "404", "413", "415", "429", "500", "503"} <= set(responses)
        assert responses["400"]["content"]["application/json"]["schema"]["$ref"].endswith(f"/{shape}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_every_event_of_a_stream_is_described(api: Any, document: dict[str, Any], path: str) -> None:
    asked = {"max_tokens": 3} if path == "/v1/messages" else {}
    said = {"prompt": "hi"} if path == "/v1/completions" else {"input": "hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hi"}]}
    response = api.post(path, {**asked, **said, "stream": True})
    assert response.status_code == 200, response.text
    schema = document["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]["properties"]["data"]
    encoded, *ends = schema.get("anyOf", [schema])
    validator = jsonschema.Draft202012Validator(encoded["contentSchema"] | {"components": document["components"]})
    for data in (line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")):
        if {"const": data} not in ends:
            validator.validate(json.loads(data))


def test_what_needs_a_key_may_answer_that_there_is_none() -> None:
    needs_no_key = {path for (_, path), operation in OPERATIONS.items() if 401 not in operation.errors}
    assert needs_no_key == OPEN_PATHS


@pytest.fixture(scope="session")
def schemathesis() -> Path:
    """The program, in a virtual environment beside other cached files: it wants libraries of other versions than the api's."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stoker", "clients", "schemathesis")
    program = home / "bin" / "schemathesis"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([home / "bin" / "pip", "install", "-q", "schemathesis>=4.32"], check=True)
    return program


@pytest.mark.stress
def test_generated_requests_are_answered_as_described(make_api: Any, schemathesis: Path, tmp_path: Path) -> None:
    with make_api(Script(max_model_len=64)) as api:
        command = [schemathesis, "run", f"{api.url}/openapi.json", f"--checks={','.join(CHECKS)}", "--phases=fuzzing", "--seed=1", "--no-color"]
        done = subprocess.run(
            [*command, f"--max-examples={EXAMPLES_PER_OPERATION}", "--warnings=off"], cwd=tmp_path, capture_output=True, text=True, timeout=3000, check=False
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        counted = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
        assert counted is not None and int(counted[1].replace(",", "")) >= CASES, done.stdout[-2000:]
        assert api.status("/readyz") == 200 and json.loads(api.client.get("/load").text)["inFlight"] == 0
