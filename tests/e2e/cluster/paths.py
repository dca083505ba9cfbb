"""Where the tooling keeps what outlives a run: all of it outside the checkout."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stoker"
BINARIES = CACHE / "bin"
STATE = CACHE / "cluster"
LOCK = CACHE / "cluster.lock"
LOGS = STATE / "log"
KUBECONFIG = STATE / "admin.kubeconfig"
AUDIT_LOG = STATE / "audit.log"
MODULES = Path(__file__).parent
