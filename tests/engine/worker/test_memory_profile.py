import pytest

from stoker_engine.worker import memory_profile
from stoker_engine.worker.memory_profile import profile_kv_cache_bytes

HOST_BYTES = 1 << 30


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step peaks at 50 MB above what was there before."""
    monkeypatch.setattr(memory_profile, "available_host_memory", lambda: HOST_BYTES)
    monkeypatch.setattr(memory_profile, "resident_bytes", lambda: 7_000_000)
    monkeypatch.setattr(memory_profile, "peak_resident_bytes", lambda: 57_000_000)


@pytest.mark.usefixtures("_measured")
def test_of_the_kv_cache_only_the_tokens_that_a_step_wrote_are_no_activations(make_config, loaded) -> None:
    config = make_config(max_num_batched_tokens=64, max_num_seqs=16, gpu_memory_utilization=0.5)
    token_bytes = loaded.kv_block_bytes // config.block_size
    assert profile_kv_cache_bytes(config, loaded, 320) == HOST_BYTES // 2 - (50_000_000 - 16 * token_bytes)


@pytest.mark.usefixtures("_measured")
def test_what_is_left_is_told_whatever_the_settings_ask_for(make_config, loaded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 16, "gpu_memory_utilization": 0.5}
    left = profile_kv_cache_bytes(make_config(**settings), loaded, 320)
    assert profile_kv_cache_bytes(make_config(kv_cache_memory_bytes=3 << 30, **settings), loaded, 320) == left
    assert caplog.messages[-1] == f"memory left for the KV cache: {left / (1 << 30):.2f} GiB"


def test_where_memory_is_ample_no_step_is_run(make_config, loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a step was run")

    monkeypatch.setattr(memory_profile, "available_host_memory", lambda: 64 << 30)
    monkeypatch.setattr(memory_profile, "run_step", refuse)
    assert profile_kv_cache_bytes(make_config(), loaded, 320) == memory_profile.MAX_CPU_KV_CACHE_BYTES


@pytest.mark.fault("E4")
def test_a_step_of_as_many_requests_as_may_run_samples_with_penalties_and_log_probabilities(make_config, loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    run_step = memory_profile.run_step
    monkeypatch.setattr(memory_profile, "available_host_memory", lambda: HOST_BYTES)
    monkeypatch.setattr(memory_profile, "run_step", lambda runner, step: (steps.append(step), run_step(runner, step)))
    profile_kv_cache_bytes(make_config(max_num_batched_tokens=64, max_num_seqs=16, max_logprobs=7), loaded, 320)
    _, sampling = steps
    params = [request.sampling_params for request in sampling.new_requests]
    assert [(p.logprobs, p.presence_penalty, p.frequency_penalty, p.repetition_penalty) for p in params] == [(7, 0.1, 0.1, 1.1)] * 16
    assert set(sampling.num_scheduled_tokens.values()) == {1}
