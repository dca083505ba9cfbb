"""`$(NAME)` in arguments and environment values, as a kubelet replaces it."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with the values of `variables`. A name that is not among them stays as it is, and `$$` is `$`."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text)
