"""Which model has which name: a served name belongs to its oldest claimant, and `namespace/name` to the InferenceDeployment that is called so."""

from collections.abc import Iterable
from dataclasses import dataclass

from stoker_gateway.router.fleet_view import DeploymentView


@dataclass(frozen=True, slots=True)
class NameClaims:
    """By uid. Every gateway comes to the same from the same InferenceDeployments."""

    owners: dict[str, str]
    """Served names, aliases and full names, each with the uid that has it."""
    taken: dict[str, tuple[tuple[str, str], ...]]
    """For each uid: the names it claims and has not, each with its owner's full name."""


def full_name(view: DeploymentView) -> str:
    """The name that nobody else can have."""
    return f"{view.namespace}/{view.name}"


def by_age(views: Iterable[DeploymentView]) -> list[DeploymentView]:
    """Oldest first."""
    return sorted(views, key=lambda view: (view.created, view.namespace, view.name))


def claim_names(views: Iterable[DeploymentView]) -> NameClaims:
    """No served name takes another's full name, however old: a later InferenceDeployment would have no name left that is its own."""
    oldest_first = by_age(views)
    titles = {view.uid: full_name(view) for view in oldest_first}
    owners = {title: uid for uid, title in titles.items()}
    taken: dict[str, tuple[tuple[str, str], ...]] = {}
    for view in oldest_first:
        lost = [(name, titles[owner]) for name in dict.fromkeys(view.served_names) if (owner := owners.setdefault(name, view.uid)) != view.uid]
        taken[view.uid] = tuple(lost)
    return NameClaims(owners, taken)
