"""manifests/install.yaml: what `helm install stoker charts/stoker -n stoker --create-namespace` installs, for `kubectl apply`."""

import shutil
import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).parent / "stoker"
INSTALL = CHART.parents[1] / "manifests" / "install.yaml"
HEADER = "# Rendered from charts/stoker by `make manifests`; edit the chart, not this file.\n"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: stoker\n"


def render(helm: str) -> str:
    command = [helm, "template", "stoker", str(CHART), "--namespace=stoker"]
    return HEADER + NAMESPACE + subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Takes the path of helm, where it is not in PATH."""
    helm = sys.argv[1] if sys.argv[1:] else shutil.which("helm")
    if helm is None:
        sys.exit("helm is needed to render manifests/install.yaml: `python -m cluster env` has one, or get it from https://helm.sh")
    INSTALL.write_text(render(helm), encoding="utf-8")


if __name__ == "__main__":
    main()
