from dataclasses import replace

import pytest

from limits import Cost, Machine

SMOLLM2 = Cost(weight_bytes=2, layer_parameters=106_168_320, head_parameters=28_311_552, kv_bytes=23_040, attention_operations=69_120)


def test_one_stream_is_limited_by_its_weights_and_keys() -> None:
    seconds = SMOLLM2.decode_seconds(Machine(48.5e9), 1, 200)
    assert seconds == pytest.approx((2 * (106_168_320 + 28_311_552) + 200 * 23_040) / 48.5e9)
    assert 1000 * seconds == pytest.approx(5.64, abs=0.01)


def test_more_requests_than_the_weights_take_to_read_are_limited_by_operations() -> None:
    machine = Machine(48.5e9, 1.07e12)
    matrices = 2 * 32 * (106_168_320 + 28_311_552) / 1.07e12
    keys = 32 * 200 * 23_040 / 48.5e9
    assert SMOLLM2.decode_seconds(machine, 32, 200) == pytest.approx(matrices + keys)


def test_a_prefill_computes_logits_of_one_row_and_attends_to_half_of_the_square() -> None:
    machine = Machine(1e30, 1e12)
    operations = 2 * 1024 * 106_168_320 + 2 * 28_311_552 + 69_120 * 1024 * 1025 / 2
    assert SMOLLM2.prefill_seconds(machine, 1024) == pytest.approx(operations / 1e12)


def test_a_batch_is_its_prefills_and_full_steps() -> None:
    machine = Machine(48.5e9, 1.07e12)
    expected = SMOLLM2.prefill_seconds(machine, 16, 64) + 2 * 127 * SMOLLM2.decode_seconds(machine, 32, 16 + 64)
    assert SMOLLM2.batch_seconds(machine, 64, 32, (16, 128)) == pytest.approx(expected)


def test_without_a_peak_only_bandwidth_limits() -> None:
    assert Machine(1e9).seconds(2e9, 1e30) == 2


def test_quantized_weights_are_read_in_half_the_time_and_keys_are_not() -> None:
    machine = Machine(48.5e9)
    quantized = replace(SMOLLM2, weight_bytes=1)
    assert 2 * quantized.decode_seconds(machine, 1, 0) == pytest.approx(SMOLLM2.decode_seconds(machine, 1, 0))
    assert quantized.decode_seconds(machine, 1, 200) - quantized.decode_seconds(machine, 1, 0) == pytest.approx(200 * 23_040 / 48.5e9)
