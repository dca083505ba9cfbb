"""One rule between fields."""

from collections.abc import Callable
from dataclasses import dataclass

from stoker_operator.v1alpha1 import InferenceDeployment


@dataclass(frozen=True, slots=True)
class Rule:
    """`cel` stands on the schema node at `node`; a violation names `field` below it, or the node itself.

    A rule on an object that defaults to `{}` must hold for that too: the API server tries it before it fills the fields.
    A rule on the spec sees every default.
    """

    node: tuple[str, ...]
    field: str | None
    cel: str
    message: str
    holds: Callable[[InferenceDeployment], bool]

    @property
    def path(self) -> tuple[str, ...]:
        """What a violation names, from the root."""
        return (*self.node, *self.field.split(".")) if self.field else self.node


def spec_rule(field: str, cel: str, message: str, holds: Callable[[InferenceDeployment], bool]) -> Rule:
    """A rule between sections of the spec: `self` is the spec."""
    return Rule(node=("spec",), field=field, cel=cel, message=message, holds=holds)
