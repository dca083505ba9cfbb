"""The `stoker` command: `stoker up`, `stoker operator` and `stoker crd`."""

import argparse
import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from stoker_engine.early_stop import stop_at_once_on_signals
from stoker_engine.errors import ConfigError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.settings import from_args
from stoker_engine.version import __version__
from stoker_operator.config import OperatorConfig
from stoker_operator.errors import ManifestError, OperatorError
from stoker_operator.local import UpOptions, run_up
from stoker_operator.names import LOCAL_PORT
from stoker_operator.operator_log import configure_operator_logging
from stoker_operator.ports import MAX_PORT

OPERATOR = "operator"


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_CONFIG, f"{self.prog}: {message} (--help lists the flags)\n")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and exits: 0, 1 for a failure, 2 for bad input, 128 + signal when a second signal cut a drain short."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character, or a file name that is no text, must not stop the replicas.
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if args is None else args
    if given[:1] == [OPERATOR]:
        raise SystemExit(_operator(given[1:]))
    options = _parser().parse_args(given)
    if options.command == "crd":
        from stoker_operator.crd import crd_yaml

        sys.stdout.write(crd_yaml())
        raise SystemExit(ExitCode.OK)
    try:
        raise SystemExit(run_up(UpOptions(files=tuple(options.filename), host=options.host, port=options.port, question=options.once)))
    except OperatorError as error:
        sys.stderr.write(f"stoker up: {error}\n")
        raise SystemExit(ExitCode.BAD_CONFIG if isinstance(error, ManifestError) else ExitCode.FAILED) from None


def _operator(args: Sequence[str]) -> ExitCode:
    """Its flags are those of OperatorConfig."""
    stop_at_once_on_signals()
    try:
        config = from_args(OperatorConfig, args, program=f"stoker {OPERATOR}")
    except ConfigError as error:
        sys.stderr.write(f"stoker {OPERATOR}: {error}\n")
        return ExitCode.BAD_CONFIG
    configure_operator_logging(config.log_level, config.log_format)
    from stoker_operator.run_operator import run_operator  # kopf and kubernetes take a second to import, and no other command needs them

    return run_operator(config)


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="stoker", description="Runs large language models from InferenceDeployments.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"stoker {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="run InferenceDeployments on this machine", description="Runs InferenceDeployments on this machine.")
    up.add_argument("-f", "--filename", action="append", required=True, metavar="FILE", help="file with InferenceDeployments, - for standard input; repeatable")
    up.add_argument("--host", default="127.0.0.1", help="address that everything listens on (default: %(default)s)")
    up.add_argument(
        "--port",
        type=_port,
        default=LOCAL_PORT,
        help="port to ask, 0 for any: the api's, or the gateway's before several replicas; the others get the next free ones (default: %(default)s)",
    )
    up.add_argument("--once", metavar="QUESTION", help="ask the first model one question, print the answer, drain and exit")
    commands.add_parser(OPERATOR, help="run the operator of a cluster", add_help=False)
    commands.add_parser("crd", help="print the CustomResourceDefinition", description="Prints the CustomResourceDefinition as YAML.")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {MAX_PORT}, got {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
