from typing import Any

import pytest

from stoker_engine.core.model_runner_output import NOT_FINITE, NOTHING_ALLOWED, OUT_OF_RANGE
from stoker_engine.core.parameter_at_fault import parameter_at_fault
from stoker_engine.sampling_params import SamplingParams, StructuredOutputs

FORM = StructuredOutputs("choice", '["yes"]', parameter="structured_outputs.choice")


@pytest.mark.parametrize(
    ("failure", "fields", "parameter"),
    [
        (NOTHING_ALLOWED, {"structured_outputs": FORM, "allowed_token_ids": [5]}, "allowed_token_ids"),
        (NOTHING_ALLOWED, {"structured_outputs": FORM, "bad_words": ["y"]}, "bad_words"),
        (NOTHING_ALLOWED, {"structured_outputs": FORM}, "structured_outputs.choice"),
        (NOTHING_ALLOWED, {"min_tokens": 3}, "min_tokens"),
        (OUT_OF_RANGE, {"frequency_penalty": 2.0}, "frequency_penalty"),
        (OUT_OF_RANGE, {"logit_bias": {1: 50.0}}, "logit_bias"),
        (OUT_OF_RANGE, {"logit_bias": {1: 50.0}, "repetition_penalty": 1.1}, "logit_bias"),
        (NOTHING_ALLOWED, {}, None),
        (OUT_OF_RANGE, {}, None),
        (NOT_FINITE, {"allowed_token_ids": [5]}, None),
    ],
)
def test_a_request_whose_own_parameters_leave_nothing_to_sample_is_told_which(failure: str, fields: dict[str, Any], parameter: str | None) -> None:
    assert parameter_at_fault(failure, SamplingParams(**fields)) == parameter
