"""`stoker up`: the plan that the operator makes for pods, run as processes of this machine."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stoker_engine.errors import SocketDirectoryError
from stoker_engine.socket_directories import SocketDirectories, local_root
from stoker_engine.supervisor_pipe import SupervisorPipe
from stoker_operator.display import Display, PlainDisplay
from stoker_operator.errors import LocalError, ManifestError
from stoker_operator.local_limits import fields_of_gateways, ignored_fields
from stoker_operator.manifest import load_manifests
from stoker_operator.names import LOCAL_PORT, local_title
from stoker_operator.plan import GatewayPlacement, Placement, ReplicaPlan, plan_gateway, plan_replica
from stoker_operator.ports import choose_ports
from stoker_operator.supervisor import Supervisor
from stoker_operator.v1alpha1 import InferenceDeployment


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The flags of `stoker up`. With `question`, one question is asked and everything ends."""

    files: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = LOCAL_PORT
    question: str | None = None


def run_up(options: UpOptions) -> int:
    """Runs all that the files describe; returns the exit code. Raises ManifestError or LocalError before anything is started."""
    deployments = load_manifests(options.files)
    num_replicas = sum(deployment.spec.replicas for deployment in deployments)
    if not num_replicas:
        raise ManifestError(f"{', '.join(options.files)}: $.spec.replicas: nothing to run, every InferenceDeployment has 0; set 1 or more")
    # One replica needs no gateway: it is the one address itself.
    has_gateway = num_replicas > 1
    ports = choose_ports(options.host, options.port, int(has_gateway) + 2 * num_replicas)
    directories = SocketDirectories(local_root())
    # The programs hold the read end: its end of file tells them that this process is gone, however it went.
    supervisor = SupervisorPipe()
    try:
        gateway_place = GatewayPlacement(str(directories.create()), options.host, ports.pop(0), supervisor.read_end) if has_gateway else None
        # The apis' ports come first, the engines' own probes after them.
        pairs = zip(ports[:num_replicas], ports[num_replicas:], strict=True)
        plans = _plan(deployments, [Placement(str(directories.create()), options.host, *of_one, supervisor.read_end) for of_one in pairs])
        gateway = None if gateway_place is None else plan_gateway(deployments, plans, gateway_place)
        display = _make_display()
        for note in _notes(deployments, has_gateway=has_gateway):
            display.note(note)
        return asyncio.run(_supervise(Supervisor(plans, gateway, (supervisor.read_end,), display), options.question, display))
    except SocketDirectoryError as error:
        raise LocalError(str(error)) from error
    finally:
        directories.remove_all()
        supervisor.close()


def _plan(deployments: Sequence[InferenceDeployment], placements: Sequence[Placement]) -> list[ReplicaPlan]:
    replicas = [(deployment, index) for deployment in deployments for index in range(deployment.spec.replicas)]
    return [plan_replica(deployment, index, placement) for (deployment, index), placement in zip(replicas, placements, strict=True)]


def _notes(deployments: Sequence[InferenceDeployment], *, has_gateway: bool) -> Iterator[str]:
    for deployment in deployments:
        title = local_title(deployment.metadata.namespace, deployment.metadata.name)
        if fields := ignored_fields(deployment):
            yield f"{title}: ignored outside a cluster: {', '.join(fields)}"
        if fields := [] if has_gateway else fields_of_gateways(deployment):
            yield f"{title}: ignored without a gateway, which only several replicas have: {', '.join(fields)}"


async def _supervise(supervisor: Supervisor, question: str | None, display: Display) -> int:
    try:
        return await (supervisor.serve() if question is None else supervisor.answer(question))
    finally:
        display.close()


def _make_display() -> Display:
    if not sys.stdout.isatty():
        return PlainDisplay()
    from rich.console import Console

    from stoker_operator.live_table import LiveDisplay

    console = Console()
    return PlainDisplay() if console.is_dumb_terminal else LiveDisplay(console)
