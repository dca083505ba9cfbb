import numpy as np
import pytest

from clients import parse_bench_serve
from load import LoadResult, Objective, StreamTiming, Workload, percentile, random_prompts

OBJECTIVE = Objective(first=1.0, per_token=0.1)


@pytest.mark.parametrize("percent", [0, 1, 50, 90, 99, 100])
def test_a_percentile_is_numpys(percent: float) -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


def test_the_only_value_is_every_percentile() -> None:
    assert percentile([7.0], 99) == 7.0


def test_times_of_a_stream_come_from_its_chunks() -> None:
    stream = StreamTiming((0.2, 0.3, 0.5), num_tokens=4)
    assert stream.first == 0.2
    assert stream.time_per_output_token == pytest.approx(0.1)
    assert stream.gaps == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize(("chunks", "num_kept"), [((1.0, 1.09), 1), ((1.01, 1.1), 0), ((0.5, 0.61), 0)], ids=["on time", "late first token", "slow tokens"])
def test_a_request_counts_for_the_goodput_where_it_keeps_both_objectives(chunks: tuple[float, ...], num_kept: int) -> None:
    assert LoadResult(1.0, [StreamTiming(chunks, num_tokens=2)]).metrics(OBJECTIVE)["goodput"] == num_kept


def test_a_run_is_summed_up_per_second_and_in_milliseconds() -> None:
    result = LoadResult(2.0, [StreamTiming((0.5, 0.6), 2), StreamTiming((3.0, 3.1), 2)])
    metrics = result.metrics(OBJECTIVE)
    assert metrics["output"] == 2
    assert metrics["requests"] == 1
    assert metrics["goodput"] == 0.5
    assert metrics["ttft_p50"] == pytest.approx(1750)
    assert metrics["itl_p99"] == pytest.approx(100)


def test_prompts_share_their_prefix_and_nothing_else() -> None:
    first, second = random_prompts(Workload(2, 1, 128, 1, seed=1, prefix_len=96))
    assert len(first) == len(second) == 128
    assert first[:96] == second[:96]
    assert first[96] != second[96]


def test_no_seed_and_no_length_repeats_the_beginning_of_another() -> None:
    firsts = {tuple(random_prompts(Workload(1, 1, input_len, 1, seed))[0][:16]) for seed in range(-1, 20) for input_len in (16, 128, 1024)}
    assert len(firsts) == 21 * 3


def bench_serve(completed: int) -> dict[str, object]:
    percentiles = {f"p{percent}_{name}_ms": 10.0 * percent for name in ("ttft", "tpot", "itl") for percent in (50, 99)}
    return {"completed": completed, "output_throughput": 236.5, "request_throughput": 3.7, "request_goodput": 0.0, "errors": ["refused"], **percentiles}


def test_vllms_metrics_get_our_names() -> None:
    metrics = parse_bench_serve(bench_serve(8), 8)
    assert metrics["output"] == 236.5
    assert metrics["goodput"] == 0.0
    assert metrics["ttft_p99"] == 990.0
    assert set(metrics) == set(LoadResult(1.0, [StreamTiming((0.1, 0.2), 2)]).metrics(OBJECTIVE))


def test_a_failed_request_of_vllms_client_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"7 of 8 requests were answered: .*refused"):
        parse_bench_serve(bench_serve(7), 8)
