"""`stoker-engine`: flags → EngineConfig → EngineCoreProc until it ends."""

import sys

from setproctitle import setproctitle

from stoker_engine.config import EngineConfig
from stoker_engine.core.run import EngineProcess
from stoker_engine.executor.base import Executor
from stoker_engine.log import configure_logging
from stoker_engine.settings import run_or_exit


def make_executor(config: EngineConfig) -> Executor:
    from stoker_engine.executor.uniproc import UniprocExecutor  # torch: the handshake is under way before it is imported

    return UniprocExecutor(config)


def main() -> None:
    config = run_or_exit(EngineConfig, program="stoker-engine")
    setproctitle("stoker-engine")
    configure_logging(config.log_level)
    sys.exit(EngineProcess(config, make_executor).run())


if __name__ == "__main__":
    main()
