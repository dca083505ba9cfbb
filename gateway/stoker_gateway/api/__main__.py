"""`stoker-api`: flags → ApiConfig → the server until it is told to stop."""

import sys

from setproctitle import setproctitle

from stoker_engine.log import configure_logging
from stoker_engine.settings import run_or_exit
from stoker_gateway.api.config import ApiConfig


def main() -> None:
    config = run_or_exit(ApiConfig, program="stoker-api")
    setproctitle("stoker-api")
    configure_logging(config.log_level)
    from stoker_gateway.api.server import run  # FastAPI and transformers: a bad flag is told before they are imported

    sys.exit(run(config))


if __name__ == "__main__":
    main()
