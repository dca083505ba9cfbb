"""Quantities as Kubernetes writes them: 500m, 8Gi, 2."""

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

MAX_EXPONENT = 40
"""Ten exabytes are 10 to the 19; far larger numbers would overflow the arithmetic."""


def amount(quantity: int | float | str) -> Decimal:
    """The number of bytes, cores or devices. Raises ValueError for what is no quantity."""
    # A float goes by its shortest text: 0.1 is a tenth, not the binary number nearest to it.
    parsed = Decimal(parse_quantity(str(quantity)))
    if not parsed.is_finite() or parsed.adjusted() > MAX_EXPONENT:
        raise ValueError(f"{quantity!r} is no quantity; write one such as 500m or 8Gi")
    return parsed


def same_amount(one: object, other: object) -> bool:
    """Whether two quantities are one amount; what is no quantity equals only itself."""
    if one == other:
        return True
    if not isinstance(one, int | float | str) or not isinstance(other, int | float | str):
        return False
    try:
        return amount(one) == amount(other)
    except ValueError:
        return False
