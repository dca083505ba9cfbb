"""The base image of a machine that can pull none: the host's Debian release, with Python, pip and tini."""

import os
import platform
import subprocess
import tarfile
import tempfile
from pathlib import Path

from images.paths import IMAGES

PACKAGES = ("python3", "python3-venv", "python3-pip", "tini", "ca-certificates")
LEFT_OUT = (
    "./dev/",
    "./proc/",
    "./sys/",
    "./var/cache/apt/",
    "./var/lib/apt/lists/",
    "./var/log/",
    "./usr/share/doc/",
    "./usr/share/man/",
    "./usr/share/locale/",
    "./usr/share/info/",
)


def release() -> str:
    """The host's, such as bookworm. Raises RuntimeError where the host is no Debian."""
    facts = platform.freedesktop_os_release()
    if facts.get("ID") != "debian":
        raise RuntimeError(f"images are built from Debian packages here, and this is {facts.get('PRETTY_NAME', 'another system')}: use `docker build`")
    return facts["VERSION_CODENAME"]


def base_archive() -> Path:
    """A tar of the root file system, 150 MB; a minute or two the first time."""
    codename = release()
    archive = IMAGES / f"{codename}-{'-'.join(PACKAGES)}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=IMAGES, prefix="rootfs-") as folder:
            # As a child of a folder: debootstrap wants to make it itself, with the mode of a root directory.
            rootfs = Path(folder) / "rootfs"
            command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", codename, str(rootfs), _mirror()]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            unfinished = archive.with_suffix(".unfinished")
            with tarfile.open(unfinished, "w") as tar:
                tar.add(rootfs, arcname=".", filter=_wanted)
            os.replace(unfinished, archive)
    return archive


def python_version(archive: Path) -> str:
    """Of the archive's python3, such as 3.11."""
    with tarfile.open(archive) as tar:
        return tar.getmember("./usr/bin/python3").linkname.removeprefix("python")


def _mirror() -> str:
    """The one that the host's own packages come from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    sites = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if not sites:
        raise RuntimeError("apt knows no Debian mirror: see /etc/apt/sources.list")
    return sites[0]


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.startswith(LEFT_OUT) else entry
