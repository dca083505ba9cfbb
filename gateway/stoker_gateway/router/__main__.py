"""`stoker-gateway`: flags → GatewayConfig → the server until it is told to stop."""

import logging
import os
import sys

from stoker_engine.early_stop import stop_at_once_on_signals
from stoker_engine.importing import importing


def main() -> None:
    stop_at_once_on_signals()
    with importing():
        from setproctitle import setproctitle

        from stoker_engine.log import configure_logging
        from stoker_engine.settings import run_or_exit
        from stoker_engine.termination import stop_with_message_on_signals
        from stoker_gateway.router.config import GatewayConfig

        config = run_or_exit(GatewayConfig, program="stoker-gateway")
        stop_with_message_on_signals(config.termination_message_path)
        setproctitle("stoker-gateway")
        configure_logging(config.log_level, config.log_format)
        from stoker_gateway.router.server import run  # most of the imports: a bad flag is told before them

    code = run(config)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
