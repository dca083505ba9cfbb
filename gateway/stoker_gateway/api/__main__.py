"""`stoker-api`: flags → ApiConfig → the server until it is told to stop."""

import sys

from setproctitle import setproctitle

from stoker_engine.log import configure_logging
from stoker_engine.settings import run_or_exit
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.early_stop import stop_at_once_on_signals


def main() -> None:
    config = run_or_exit(ApiConfig, program="stoker-api")
    setproctitle("stoker-api")
    configure_logging(config.log_level)
    stop_at_once_on_signals(config.termination_message_path)
    from stoker_gateway.api.server import run  # half a second of imports: a bad flag is told, and signals are heard, before them

    sys.exit(run(config))


if __name__ == "__main__":
    main()
