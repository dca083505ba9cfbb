import pytest

from engine import tokens_metric
from options import Options
from rounds import Reading, Round

ROUND = Round(Reading(50.0), Reading(49.0), 1e12, {})


def options(quantization: str) -> Options:
    return Options((), "file:///model", 1.0, 3, 0, {"quantization": quantization}, ())


@pytest.mark.parametrize(("quantization", "limits_peers"), [("none", True), ("int8", False), ("int8-w8a8", False)])
def test_a_limit_from_quantized_weights_is_ours_alone(quantization: str, *, limits_peers: bool) -> None:
    metric = tokens_metric(options(quantization), "decode", "decoded tokens", lambda machine: machine.bandwidth)
    assert metric.limit is not None and metric.limit(ROUND) == 50e9
    assert metric.limits_peers is limits_peers


def test_what_computes_has_no_limit_where_the_products_are_of_bytes() -> None:
    limits = {name: tokens_metric(options(name), "rate", "tokens", lambda machine: machine.bandwidth, computes=True).limit for name in ("int8", "int8-w8a8")}
    assert limits["int8"] is not None and limits["int8-w8a8"] is None
