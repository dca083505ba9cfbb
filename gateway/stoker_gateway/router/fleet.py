"""The models and replicas that there are, as live objects: what a source says becomes what requests are sent by."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet_history import FleetHistory
from stoker_gateway.router.fleet_view import FleetView
from stoker_gateway.router.name_claims import by_age, claim_names, full_name
from stoker_gateway.router.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class FleetChange:
    """What an update took away. Requests that the endpoints have go on; their idle connections are of no more use."""

    endpoints: tuple[Endpoint, ...]
    models: tuple[ServedModel, ...]


class Fleet:
    """Lives on one event loop. A model keeps its object by uid, an endpoint by pod and address."""

    def __init__(self) -> None:
        self.is_synced = False
        """Whether a source has told everything it knows once."""
        self.listeners: list[Callable[[FleetChange], None]] = []
        """Called after each update, in turn; they see the fleet as it is then."""
        self.history = FleetHistory()
        self._models: dict[str, ServedModel] = {}
        self._by_name: dict[str, ServedModel] = {}
        self._named: list[tuple[object, ...]] = []
        """What the names were last given by."""

    @property
    def models(self) -> list[ServedModel]:
        """Oldest first."""
        return list(self._models.values())

    def find(self, name: str) -> ServedModel | None:
        """By a served name, an alias, or `namespace/name`."""
        return self._by_name.get(name)

    def update(self, view: FleetView) -> None:
        """Takes over what a source says."""
        models: dict[str, ServedModel] = {}
        removed: list[Endpoint] = []
        for deployment in by_age(view):
            models[deployment.uid] = model = self._models.pop(deployment.uid, None) or ServedModel(deployment)
            # Of thousands one has changed.
            if model.view is not deployment:
                removed += model.update(deployment)
        gone = tuple(self._models.values())
        removed += [endpoint for model in gone for endpoint in model.endpoints]
        for endpoint in removed:
            # Whoever still has it in hand sends it nothing more.
            endpoint.view = replace(endpoint.view, is_ready=False, is_terminating=True)
        self._models = models
        self._name(view)
        self.history.see(models.values())
        self.is_synced = True
        change = FleetChange(tuple(removed), gone)
        for listener in self.listeners:
            listener(change)

    def failed(self, endpoint: Endpoint, why: str, now: float) -> None:
        """A replica has not answered a request as one that is well would."""
        self.history.failure(endpoint, "failed", why)
        if endpoint.health.failed(now):
            self._ejected(endpoint, f"{endpoint.health.num_failures} failures in a row", now)

    def unreachable(self, endpoint: Endpoint, why: str, now: float) -> None:
        """There is no connection to it. Once is enough: what is gone, or dropped on the way, makes every further request wait in vain."""
        self.history.failure(endpoint, "failed", why)
        endpoint.health.suspect()
        if endpoint.health.failed(now):
            self._ejected(endpoint, "no connection", now)

    def _ejected(self, endpoint: Endpoint, why: str, now: float) -> None:
        self.history.failure(endpoint, "ejected", f"ejected for {endpoint.health.ejected_until - now:.0f} s: {why}")

    def readmit(self, endpoint: Endpoint) -> None:
        """A replica that was ejected says itself that it is ready."""
        self.history.failure(endpoint, "readmitted", "says that it is ready and gets requests again")
        endpoint.health.readmit()

    def _name(self, view: FleetView) -> None:
        named: list[tuple[object, ...]] = [(each.uid, each.namespace, each.name, each.created, each.served_names) for each in view]
        if named == self._named:
            return
        self._named = named
        claims = claim_names(view)
        self._by_name = {name: self._models[uid] for name, uid in claims.owners.items()}
        for uid, model in self._models.items():
            own = tuple(name for name in dict.fromkeys(model.view.served_names) if claims.owners[name] == uid)
            has_first = own[:1] == model.view.served_names[:1]
            model.names = own if has_first else (full_name(model.view), *(name for name in own if name != full_name(model.view)))
            model.names_taken = claims.taken[uid]
