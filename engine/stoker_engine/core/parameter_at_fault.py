"""Which of a request's own parameters makes a step fail, where one does."""

from stoker_engine.core.model_runner_output import NOTHING_ALLOWED, OUT_OF_RANGE
from stoker_engine.sampling_params import SamplingParams


def parameter_at_fault(failure: str, params: SamplingParams) -> str | None:
    """None where the request is not to blame, or has no such parameter. Of several that could be it, one."""
    if failure == NOTHING_ALLOWED:
        given = (name for name in ("allowed_token_ids", "bad_words", "logit_bias", "min_tokens") if getattr(params, name))
        form = params.structured_outputs
        return next(given, None if form is None else form.parameter)
    if failure == OUT_OF_RANGE:
        neutral = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
        changed = (name for name, value in neutral.items() if getattr(params, name) != value)
        return "logit_bias" if params.logit_bias else next(changed, None)
    return None
