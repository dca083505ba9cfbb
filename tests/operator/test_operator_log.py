import json
import logging
from collections.abc import Iterator

import pytest

from stoker_operator.operator_log import configure_operator_logging, working_on


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    working_on.set("")


def test_a_json_line_names_the_inference_deployment_that_is_worked_on(capsys: pytest.CaptureFixture[str]):
    configure_operator_logging("info", "json")
    working_on.set("ns/m")
    logging.getLogger("stoker_operator.apply").info("Created the %s", "Service")
    line = json.loads(capsys.readouterr().err)
    assert (line["inferenceDeployment"], line["message"], line["level"]) == ("ns/m", "Created the Service", "info")


def test_a_text_line_begins_with_it(capsys: pytest.CaptureFixture[str]):
    configure_operator_logging("info", "text")
    working_on.set("ns/m")
    logging.getLogger("stoker_operator.apply").info("Created the %s", "Service")
    assert capsys.readouterr().err.rstrip().endswith("INFO stoker_operator.apply: ns/m: Created the Service")


def test_kopf_is_heard_only_when_something_is_wrong(capsys: pytest.CaptureFixture[str]):
    configure_operator_logging("debug", "text")
    logging.getLogger("kopf.objects").info("noise")
    assert capsys.readouterr().err == ""
