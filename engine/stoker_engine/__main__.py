"""`stoker-engine`: flags → EngineConfig → EngineCoreProc until it ends."""

import logging
import os
import sys
from typing import TYPE_CHECKING

from stoker_engine.early_stop import stop_at_once_on_signals
from stoker_engine.importing import importing

if TYPE_CHECKING:
    from stoker_engine.config import EngineConfig
    from stoker_engine.executor.base import Executor

OPENMP_SPIN_COUNT = "2000"
"""How long an idle OpenMP thread spins, in turns of its loop. The library's default keeps a core busy for milliseconds after each op: with a
neighbor on a 2-core machine a decode step took 90 ms instead of 44; with 1,000 to 20,000 turns it takes 25 to 29 ms alone, as by default."""


def make_executor(config: "EngineConfig") -> "Executor":
    with importing():
        from stoker_engine.executor.uniproc import UniprocExecutor  # torch: the handshake is under way before it is imported

    return UniprocExecutor(config)


def main() -> None:
    stop_at_once_on_signals()
    with importing():
        from setproctitle import setproctitle

        from stoker_engine.config import EngineConfig
        from stoker_engine.log import configure_logging
        from stoker_engine.settings import run_or_exit
        from stoker_engine.termination import stop_with_message_on_signals

        config = run_or_exit(EngineConfig, program="stoker-engine")
        stop_with_message_on_signals(config.termination_message_path)
        setproctitle("stoker-engine")
        configure_logging(config.log_level, config.log_format)
        os.environ.setdefault("GOMP_SPINCOUNT", OPENMP_SPIN_COUNT)  # read when torch is loaded
        from stoker_engine.core.run import EngineProcess

    code = EngineProcess(config, make_executor).run()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # the interpreter's own end would wait for native threads, which may hang


if __name__ == "__main__":
    main()
