"""`python -m cluster`: the cluster of processes on this machine, by hand and for the Makefile."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from cluster import local, network
from cluster.paths import KUBECONFIG


def main() -> int:
    options = _parser().parse_args()
    match options.command:
        case "up":
            local.up(options.nodes)
        case "down":
            local.down()
        case "run":
            return run_beside(options.arguments, options.nodes)
        case "load":
            for archive in options.archives:
                local.load_image(archive)
        case "env":
            sys.stdout.write(exports())
    return 0


def run_beside(command: list[str], num_nodes: int) -> int:
    """The command's exit code; a cluster that was up stays up, one started for the command goes with it."""
    was_started = local.up(num_nodes)
    try:
        inside = network.inside(network.NAMESPACE, *command[command[:1] == ["--"] :])
        return subprocess.run(inside, env={**os.environ, **local.environment()}, check=False).returncode
    finally:
        if was_started:
            local.down()


def exports() -> str:
    enter = " ".join(network.inside(network.NAMESPACE))
    folders = ":".join(map(str, local.path_entries()))
    return f'export KUBECONFIG="{KUBECONFIG}" PATH="{folders}:$PATH"\nalias kubectl="{enter} kubectl" helm="{enter} helm"\n'


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the cluster where it is not up")
    commands.add_parser("down", help="end the cluster, and leave nothing behind")
    run = commands.add_parser("run", help="run a command in the cluster's network, with kubectl and helm; where no cluster is up, one is started for it")
    load = commands.add_parser("load", help="import tars of images on every node")
    commands.add_parser("env", help="print what makes kubectl and helm of a shell use the cluster")
    for command in (up, run):
        command.add_argument("--nodes", type=int, default=1, choices=(1, 2), help="default: 1")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="command")
    load.add_argument("archives", nargs="+", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
