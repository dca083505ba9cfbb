import random
from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.sleep import SleepLevel
from stoker_engine.protocol import PauseMode, SleepTag
from stoker_engine.sampling_params import RepetitionDetection

A = [1 + index % 27 for index in range(40)]
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two batches": {"max_concurrent_batches": 2},
    "four batches": {"max_concurrent_batches": 4},
    "async": {"async_scheduling": True},
    "async, four batches": {"async_scheduling": True, "max_concurrent_batches": 4},
}
MakeEngine = Callable[..., Any]


def random_engine(make: MakeEngine, rng: random.Random, mode: dict[str, Any]) -> Any:
    """A pool of hardly more than one longest request keeps preemption frequent."""
    budget = rng.choice((5, 8, 30))
    return make(
        rng.randint(8, 13),
        late=rng.random() < 0.5,
        max_num_seqs=rng.choice((1, 2, 3, 4, 5, 5)),
        max_num_batched_tokens=budget,
        enable_chunked_prefill=budget < 30 or rng.random() < 0.5,
        enable_prefix_caching=rng.random() < 0.8,
        scheduling_policy=rng.choice(("fcfs", "priority")),
        watermark=rng.choice((0.0, 0.0, 0.2)),
        **mode,
    )


def random_fields(rng: random.Random) -> dict[str, Any]:
    max_tokens = rng.choice((1, 5, 9, 12, 16, 16))
    choices: list[tuple[float, dict[str, Any]]] = [
        (0.6, {"eos_token_ids": []}),
        (0.3, {"logprobs": 1}),
        (0.2, {"stop_token_ids": [3, 5, 7], "min_tokens": rng.randint(0, max_tokens)}),
        (0.2, {"cache_salt": rng.choice("xy")}),
        (0.1, {"skip_reading_prefix_cache": True}),
        (0.1, {"repetition_detection": RepetitionDetection(max_size=2)}),
        (0.2, {"grammar": rng.randint(0, 12)}),
    ]
    fields: dict[str, Any] = {"max_tokens": max_tokens}
    for probability, some in choices:
        if rng.random() < probability:
            fields |= some
    return fields


def some_ids(rng: random.Random, engine: Any) -> list[str]:
    return [*rng.sample(sorted(engine.asked), min(len(engine.asked), rng.randint(1, 2))), "never"]


def add(rng: random.Random, engine: Any) -> None:
    start, prompt_len, fields = rng.choice((0, 0, 9)), rng.randint(1, 14), random_fields(rng)
    prompt = A[start : start + prompt_len] + [rng.randrange(4) for _ in range(rng.choice((0, 0, 1, 2)))]
    again = rng.choice(engine.ended_ids) if engine.ended_ids and rng.random() < 0.1 else None
    engine.add(prompt, fields, rng.randrange(3), again)
    for _ in range(rng.choice((0, 0, 1, 3))):
        engine.add(prompt, fields, rng.randrange(3))
    if engine.live_ids and rng.random() < 0.1:
        engine.add_again(rng.choice(engine.live_ids))


def steps(rng: random.Random, engine: Any) -> None:
    for _ in range(rng.randint(1, 6)):
        engine.step(some_ids(rng, engine) if engine.asked and rng.random() < 0.05 else ())


def control(rng: random.Random, engine: Any) -> None:
    mode = rng.choice(list(PauseMode))
    match rng.randrange(8):
        case 0 | 1:
            engine.pause(mode, clear_cache=rng.random() < 0.5)
        case 2 | 3:
            engine.resume()
        case 4:
            engine.sleep(rng.choice(list(SleepLevel)), mode)
        case 5:
            engine.wake_up(rng.choice((None, None, [SleepTag.WEIGHTS], [SleepTag.KV_CACHE], [SleepTag.SCHEDULING], [])))
        case 6:
            engine.reset(force=rng.random() < 0.5)
        case 7 if rng.random() < 0.3:
            engine.lose_client()


def check_history(make: MakeEngine, seed: int, mode: dict[str, Any]) -> int:
    """Returns the number of preemptions."""
    rng = random.Random(seed)
    engine = random_engine(make, rng, mode)
    for _ in range(40):
        match rng.randrange(10):
            case 0 | 1 | 2:
                add(rng, engine)
            case 3 if engine.asked:
                rng.choice((engine.abort, engine.abort_eagerly))(some_ids(rng, engine))
            case 4:
                control(rng, engine)
            case 5 if engine.core.control.is_paused():
                engine.wake_up(None)
                engine.resume()
            case _:
                steps(rng, engine)
    engine.settle()
    num_preemptions: int = engine.core.scheduler.make_stats().num_preemptions
    return num_preemptions


@pytest.mark.property("P1", "P2", "P3", "P5", "P6", "P7", "P8", "P9", "P10", "P12", "P14", "P15", "P18", "P19", "P20", "P21")
@pytest.mark.property("P22", "P23", "P24", "P27", "P28", "P29", "P30", "P31", "P33", "P34", "P35", "P36", "P37", "P38", "P39", "P40", "P42")
@pytest.mark.fault("C1", "C8", "C16", "C17", "C18", "D1", "D19")
@pytest.mark.case("C040", "C043", "C044", "C063")
@pytest.mark.parametrize("mode", MODES)
def test_whatever_a_client_does_its_requests_get_their_own_tokens_and_leave_nothing(whole_engine: MakeEngine, mode: str) -> None:
    assert sum(check_history(whole_engine, seed, MODES[mode]) for seed in range(40)) > 50


@pytest.mark.stress
@pytest.mark.parametrize("mode", MODES)
def test_in_thousands_of_histories_whatever_a_client_does(whole_engine: MakeEngine, mode: str) -> None:
    for seed in range(10_000, 13_000):
        check_history(whole_engine, seed, MODES[mode])
