from collections.abc import Callable

from stoker_engine.core.request import Request
from stoker_engine.core.step_plan import StepPlan


def test_a_withdrawn_request_leaves_no_trace_in_the_plan(request_of: Callable[..., Request]) -> None:
    plan = StepPlan(10, {"gone": None}, [])
    requests = [request_of(request_id, prompt=[1] * 6) for request_id in "abc"]
    for request, num_new_tokens in zip(requests, (1, 4, 2), strict=True):
        request.num_computed_tokens = 2
        plan.add_running(request, [7], num_new_tokens)
    assert (plan.token_budget, requests[1].num_computed_tokens) == (3, 6)
    assert plan.withdraw(requests[1])
    assert (plan.token_budget, requests[1].num_computed_tokens) == (7, 2)
    assert requests[1] not in (*plan.sampling, *plan.prefilling)
    assert requests[1].num_output_placeholders == 0
    assert not plan.withdraw(requests[1])
    step = plan.build()
    assert step.num_scheduled_tokens == {"a": 1, "c": 2}
    assert step.cached_requests.request_ids == ["a", "c"]
    assert (step.cached_requests.new_block_ids, step.cached_requests.num_computed_tokens) == ([[7], [7]], [2, 2])
    assert (step.total_num_scheduled_tokens, step.finished_request_ids) == (3, ["gone"])


def test_an_admitted_request_carries_all_that_a_worker_needs(request_of: Callable[..., Request]) -> None:
    plan = StepPlan(10, {}, [])
    request = request_of("a", prompt=[1, 2, 3], eos_token_ids=[0], stop_token_ids=[9])
    request.append_token(4)
    plan.add_admitted(request, [5, 6], 4)
    request.append_token(8)
    (new,) = plan.build().new_requests
    assert (new.token_ids, new.num_prompt_tokens, new.block_ids, new.num_computed_tokens) == ([1, 2, 3, 4], 3, [5, 6], 0)
    assert new.sampling_params is request.wire.sampling_params
    assert (new.eos_token_ids, new.bad_words_token_ids) == ([0], [])
