from decimal import Decimal

import pytest

from stoker_operator.quantities import amount, same_amount


@pytest.mark.parametrize(
    ("quantity", "expected"), [("500m", "0.5"), (0.1, "0.1"), (2, "2"), ("1Ki", "1024"), ("1k", "1000"), ("1e3", "1000"), ("1.5Gi", "1610612736")]
)
def test_a_quantity_is_an_amount(quantity: int | float | str, expected: str) -> None:
    assert amount(quantity) == Decimal(expected)


@pytest.mark.parametrize("text", ["", "many", "1Xi", "nan", "inf", "1e999999", "1e99999999999999999999", "Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        amount(text)


def test_amounts_are_compared_whatever_the_spelling() -> None:
    assert same_amount("1000m", 1)
    assert same_amount("auto", "auto")
    assert not same_amount("1", "2")
    assert not same_amount("auto", 1)
    assert not same_amount("1", None)
