import random

import pytest
import torch

from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.sampling_params import SamplingParams

BLOCK_SIZE = 8
GREEDY = SamplingParams(temperature=0.0)
KINDS = {
    "greedy": GREEDY,
    "seeded": SamplingParams(temperature=0.9, seed=42),
    "truncated": SamplingParams(temperature=0.9, top_p=0.9, top_k=40, seed=7),
    "penalized": SamplingParams(temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.5),
    "min_tokens": SamplingParams(temperature=0.0, min_tokens=20, max_tokens=60, logit_bias={5: 3.0}),
    "unseeded": SamplingParams(temperature=1.0),
}


def _prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(320), k=length)


@pytest.mark.parametrize("chunk", [1, 3, 8, 16, 33])
def test_a_prefill_in_chunks_gives_the_tokens_of_one_in_whole(make_driver, alone, chunk: int) -> None:
    prompt = _prompt(0, 61)
    driver = make_driver()
    request = driver.add("a", prompt, KINDS["seeded"])
    outputs = []
    while request.num_computed < 61:
        outputs.append(driver.step({"a": min(chunk, 61 - request.num_computed)}))
    assert all(not output.sampled_token_ids for output in outputs[:-1])
    driver.decode(9)
    assert request.output == alone(prompt, KINDS["seeded"], 10)


@pytest.mark.property("P41")
@pytest.mark.fault("E6")
@pytest.mark.case("C049")
@pytest.mark.parametrize("num_neighbors", [1, 3, 7])
def test_a_seeded_request_is_the_same_beside_neighbors_that_come_and_go(make_driver, alone, num_neighbors: int) -> None:
    params, prompt = SamplingParams(temperature=0.8, seed=42), _prompt(1, 30)
    driver = make_driver()
    request = driver.add("s", prompt, params)
    driver.step({"s": 11})
    neighbors = [f"n{i}" for i in range(num_neighbors)]
    kinds = list(KINDS.values())
    for index, neighbor in enumerate(neighbors):
        driver.add(neighbor, _prompt(100 + index, 5 + 9 * index), kinds[index % len(kinds)])
        driver.step({"s": max(1, 30 - request.num_computed), neighbor: 5 + 9 * index} | dict.fromkeys(neighbors[:index], 1))
    driver.finish(neighbors[0])
    driver.decode(24 - len(request.output))
    assert request.output == alone(prompt, params, 24)


@pytest.mark.case("C049")
def test_another_seed_gives_other_tokens(alone) -> None:
    runs = {tuple(alone(_prompt(1, 30), SamplingParams(temperature=0.8, seed=seed), 24)) for seed in (42, 43, 0, -1, -(2**63), 2**63 - 1)}
    assert len(runs) == 6


def test_prefills_and_decodes_in_one_step_give_the_tokens_of_requests_alone(make_driver) -> None:
    driver, expected = make_driver(), make_driver()
    for index, (kind, params) in enumerate(KINDS.items()):
        prompt = _prompt(index, 10 + 7 * index)
        driver.add(kind, prompt, params, eos=[3])
        driver.step({name: len(prompt) if name == kind else 1 for name in driver.requests})
    driver.decode(12)
    for index, (kind, params) in enumerate(KINDS.items()):
        request = expected.add(kind, _prompt(index, 10 + 7 * index), params, eos=[3])
        expected.prefill(kind)
        expected.decode(len(driver.requests[kind].output) - 1, [kind])
        assert driver.requests[kind].output == request.output, kind


@pytest.mark.case("C044")
@pytest.mark.parametrize("kind", KINDS)
def test_a_preempted_request_goes_on_as_if_nothing_had_happened(make_driver, kind: str) -> None:
    outputs = []
    for preempted_after in ((), (1, 9, 10, 25)):
        driver = make_driver()
        request = driver.add("a", _prompt(5, 37), KINDS[kind], eos=[3])
        driver.add("b", _prompt(6, 20), GREEDY)
        driver.prefill("b")
        driver.prefill("a")
        while len(request.output) < 30:
            if len(request.output) in preempted_after and request.is_known:
                driver.preempt("a")
                driver.decode(2, ["b"])
                driver.poison_free_blocks()
                driver.step({"b": 1, "a": 13})
                driver.prefill("a")
                continue
            driver.decode(1)
        outputs.append(request.output)
    assert outputs[0] == outputs[1]


@pytest.mark.fault("E7")
@pytest.mark.case("C040")
def test_a_prefix_in_cached_blocks_gives_the_tokens_of_a_cold_start(make_driver, alone) -> None:
    prefix = _prompt(8, 4 * BLOCK_SIZE)
    driver = make_driver()
    first = driver.add("first", [*prefix, 9], GREEDY)
    driver.prefill("first")
    shared = first.block_ids[:4]
    for request_id, tail in (("x", _prompt(9, 1)), ("y", _prompt(10, 21))):
        request = driver.add(request_id, [*prefix, *tail], GREEDY, cached_blocks=shared)
        driver.prefill(request_id)
        driver.decode(9, [request_id])
        assert request.output == alone([*prefix, *tail], GREEDY, 10)


@pytest.mark.case("C040")
def test_what_freed_blocks_hold_is_never_seen(make_driver, alone) -> None:
    driver = make_driver()
    driver.add("old", _prompt(11, 90), GREEDY)
    driver.prefill("old")
    driver.decode(5)
    driver.finish("old")
    driver.poison_free_blocks()
    requests = {name: driver.add(name, _prompt(seed, length), GREEDY) for name, seed, length in (("a", 12, 3), ("b", 13, 70), ("c", 14, 40))}
    driver.step({"a": 3, "b": 70, "c": 17})
    driver.step({"a": 1, "b": 1, "c": 23})
    driver.decode(9)
    assert requests["a"].output == alone(_prompt(12, 3), GREEDY, 11)
    assert requests["b"].output == alone(_prompt(13, 70), GREEDY, 11)
    assert requests["c"].output == alone(_prompt(14, 40), GREEDY, 10)


@pytest.mark.case("C061")
def test_a_request_whose_logits_are_nan_fails_alone(make_driver, alone) -> None:
    driver = make_driver()
    for index, name in enumerate("abcd"):
        driver.add(name, _prompt(20 + index, 12), GREEDY)
        driver.prefill(name)
    driver.kv_caches[0][driver.requests["c"].block_ids[0]] = torch.nan
    output = driver.decode(1)[0]
    assert list(output.failures) == ["c"]
    assert sorted(output.sampled_token_ids) == ["a", "b", "d"]
    driver.finish("c")
    driver.decode(5)
    for index, name in ((0, "a"), (1, "b"), (3, "d")):
        assert driver.requests[name].output == alone(_prompt(20 + index, 12), GREEDY, 7)


def test_a_new_request_in_the_row_of_a_finished_one_has_its_own_parameters(make_driver, alone) -> None:
    driver = make_driver()
    driver.add("old", _prompt(30, 9), SamplingParams(temperature=0.0, logit_bias={7: 100.0}))
    driver.prefill("old")
    driver.finish("old")
    request = driver.add("new", _prompt(31, 9), GREEDY)
    driver.prefill("new")
    driver.decode(4)
    assert request.output == alone(_prompt(31, 9), GREEDY, 5)


def test_many_requests_and_long_ones_find_room(make_driver, alone) -> None:
    driver = make_driver()
    lengths = {f"r{i}": 1 + i % 9 for i in range(50)} | {"long": 1500}
    for index, (name, length) in enumerate(lengths.items()):
        driver.add(name, _prompt(index, length), GREEDY)
    driver.step(lengths)
    driver.decode(3)
    for index, name in ((0, "r0"), (17, "r17"), (49, "r49"), (50, "long")):
        assert driver.requests[name].output == alone(_prompt(index, lengths[name]), GREEDY, 4)


@pytest.mark.case("C044")
@pytest.mark.parametrize("chunk", [1, 16, 100])
def test_prompt_logprobs_come_whole_with_the_first_token(make_driver, chunk: int) -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=1, logprobs=2)
    prompt = _prompt(40, 100)
    whole = make_driver()
    whole.add("a", prompt, params)
    expected = whole.prefill("a").prompt_logprobs["a"]
    driver = make_driver()
    request = driver.add("a", prompt, params)
    while request.num_computed < 100:
        output = driver.step({"a": min(chunk, 100 - request.num_computed)})
        assert ("a" in output.prompt_logprobs) == (request.num_computed == 100)
    assert output.prompt_logprobs["a"].token_ids.tolist() == expected.token_ids.tolist()
    assert [row[0] for row in expected.token_ids] == prompt[1:]
    torch.testing.assert_close(torch.tensor(output.prompt_logprobs["a"].logprobs), torch.tensor(expected.logprobs), atol=1e-4, rtol=0)
    assert driver.decode(1)[0].prompt_logprobs == {}


@pytest.mark.case("C044")
def test_prompt_logprobs_survive_a_preemption_in_the_middle_of_the_prefill(make_driver) -> None:
    params, prompt = SamplingParams(temperature=0.0, prompt_logprobs=1), _prompt(41, 50)
    whole, driver = make_driver(), make_driver()
    whole.add("a", prompt, params)
    driver.add("a", prompt, params)
    driver.step({"a": 20})
    driver.preempt("a")
    driver.step({"a": 30})
    assert driver.step({"a": 20}).prompt_logprobs["a"].token_ids.tolist() == whole.prefill("a").prompt_logprobs["a"].token_ids.tolist()


def test_a_request_the_worker_does_not_know_fails_alone(make_driver) -> None:
    driver = make_driver()
    driver.add("a", _prompt(50, 5), GREEDY)
    driver.prefill("a")
    cached = CachedRequestData(["ghost", "a"], [[3], []], [4, 5])
    output = driver.run_step(SchedulerOutput([], cached, {"ghost": 1, "a": 1}, 2, [], []))
    assert list(output.failures) == ["ghost"]
    assert list(output.sampled_token_ids) == ["a"]


@pytest.mark.fault("C19")
@pytest.mark.parametrize(("num_scheduled", "block_ids", "what"), [(6, [1], "has no tokens"), (5, [], "has no KV cache slots"), (0, [1], "has no tokens")])
def test_a_request_scheduled_beyond_what_it_has_fails_alone(make_driver, num_scheduled, block_ids, what) -> None:
    driver = make_driver()
    bad = NewRequestData("bad", _prompt(51, 5), 5, GREEDY, [], [], block_ids, 0)
    good = NewRequestData("good", _prompt(52, 5), 5, GREEDY, [], [], [2], 0)
    output = driver.run_step(SchedulerOutput([bad, good], CachedRequestData(), {"bad": num_scheduled, "good": 5}, num_scheduled + 5, [], []))
    assert list(output.failures) == ["bad"]
    assert what in output.failures["bad"]
    assert list(output.sampled_token_ids) == ["good"]


def test_a_step_of_no_tokens_forgets_finished_requests(make_driver) -> None:
    driver = make_driver()
    driver.add("a", _prompt(53, 5), GREEDY)
    driver.prefill("a")
    driver.finish("a")
    output = driver.step({})
    assert output.sampled_token_ids == {}
    ghost = SchedulerOutput([], CachedRequestData(["a"], [[]], [5]), {"a": 1}, 1, [], [])
    assert "does not know" in driver.run_step(ghost).failures["a"]
