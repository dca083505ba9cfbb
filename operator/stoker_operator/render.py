"""An InferenceDeployment → its children, with what this operator brings to it."""

from datetime import UTC, datetime

from stoker_engine.version import __version__
from stoker_operator.cluster_view import ViewReader
from stoker_operator.config import OperatorConfig
from stoker_operator.kube_object import KubeObject
from stoker_operator.relist import Relist
from stoker_operator.resources.children import asked_for, render_children
from stoker_operator.resources.context import Defaults, GatewayAddress, RenderContext
from stoker_operator.resources.stable_hash import stable_hash
from stoker_operator.rollout import decide_strategy
from stoker_operator.store import Key
from stoker_operator.v1alpha1 import InferenceDeployment


def defaults_of(config: OperatorConfig) -> Defaults:
    return Defaults(config.engine_image, config.api_image, config.image_pull_policy)


class Renderer:
    """`namespace` is the operator's own."""

    def __init__(self, config: OperatorConfig, namespace: str, views: ViewReader, relist: Relist) -> None:
        self._defaults = defaults_of(config)
        self._gateway = GatewayAddress(config.gateway_service, config.gateway_namespace or namespace, config.gateway_service_port)
        self._namespace = namespace
        self._rendered_by = stable_hash([__version__, config.engine_image, config.api_image, config.image_pull_policy])
        self._views = views
        self._relist = relist

    async def render(self, deployment: InferenceDeployment, uid: str, live: KubeObject | None) -> tuple[KubeObject, ...]:
        """Raises ClusterError."""
        view = await self._views.read(deployment, live, datetime.now(UTC))
        context = RenderContext(
            uid=uid,
            defaults=self._defaults,
            gateway=self._gateway,
            operator_namespace=self._namespace,
            rendered_by=self._rendered_by,
            strategy=decide_strategy(deployment, self._defaults, live, view),
            live=live,
            extensions=self._relist.extensions,
        )
        return render_children(deployment, context)

    def unknown_kinds(self, deployment: InferenceDeployment) -> tuple[str, ...]:
        """What the spec asks for and cannot be made here."""
        return tuple(f"{kind.kind} ({kind.api_version})" for kind in asked_for(deployment) if kind not in self._relist.extensions)

    def forget(self, key: Key) -> None:
        """An InferenceDeployment that is gone."""
        self._views.forget(key)
