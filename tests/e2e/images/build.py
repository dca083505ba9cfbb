"""Images by buildah, without a network: a Dockerfile's steps find a base image made here, and wheels in a folder."""

import fcntl
import json
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from images.archive import write_archive
from images.base import base_archive, python_version
from images.fingerprint import fingerprint
from images.paths import IMAGES, REPOSITORY, RUN, STORAGE, WHEELHOUSE
from images.stamps import is_current, stamped
from images.wheelhouse import MODEL_PACKAGES, fill_wheelhouse

BASE = "localhost/stoker-base:dev"
TAGS = ("dev", "next")
PIP_ARGS = "--no-index --find-links=/wheelhouse --disable-pip-version-check --root-user-action=ignore -q"


@dataclass(frozen=True, slots=True)
class Image:
    """`sources` are the packages that its program imports: only their changes build it anew, though each image has all packages."""

    component: str
    sources: tuple[str, ...]
    model_packages: str = ""

    @property
    def name(self) -> str:
        return f"localhost/stoker-{self.component}"

    @property
    def dockerfile(self) -> Path:
        return REPOSITORY / self.component / "Dockerfile"

    @property
    def archive(self) -> Path:
        """An OCI archive with every tag of the image."""
        return IMAGES / f"stoker-{self.component}.tar"

    @property
    def stamp(self) -> Path:
        """What the archive was built of."""
        return self.archive.with_suffix(".stamp")


ALL_IMAGES = (
    Image("engine", ("kernels", "engine"), MODEL_PACKAGES),
    Image("gateway", ("engine", "gateway"), MODEL_PACKAGES),
    Image("operator", ("engine", "gateway", "operator")),
)


def build_images() -> None:
    """Writes the archives; one that was built of the same things before is left as it is. One build at a time on this machine."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rootfs = base_archive()
        constraints = fill_wheelhouse(python_version(rootfs))
        base = fingerprint(rootfs.name, str(rootfs.stat().st_mtime_ns))
        if not is_current(IMAGES / "base.stamp", base):
            with stamped(IMAGES / "base.stamp", base):
                _build_base(rootfs)
        for image in ALL_IMAGES:
            state = fingerprint(base, constraints, PIP_ARGS, *TAGS, image.model_packages, _project(image), image.dockerfile, *_sources(image))
            if not is_current(image.stamp, state):
                with stamped(image.stamp, state):
                    _build(image, constraints, state)


def _project(image: Image) -> str:
    """What pyproject.toml says to the build of that image."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    project["optional-dependencies"] = [project["optional-dependencies"][extra] for extra in (image.component, "otel")]
    return json.dumps([project, declared["build-system"], declared["tool"]["hatch"]])


def _sources(image: Image) -> list[Path]:
    return [REPOSITORY / source / f"stoker_{source}" for source in image.sources]


def _build_base(rootfs: Path) -> None:
    with tempfile.TemporaryDirectory(dir=IMAGES, prefix="base-") as folder:
        context = Path(folder)
        (context / rootfs.name).hardlink_to(rootfs)
        (context / "Dockerfile").write_text(f"FROM scratch\nADD {rootfs.name} /\n", encoding="utf-8")
        _buildah("bud", "-q", "--isolation=chroot", f"--tag={BASE}", folder)


def _build(image: Image, constraints: str, revision: str) -> None:
    arguments = {"BASE": BASE, "PIP_ARGS": f"{PIP_ARGS} --constraint=/wheelhouse/{constraints}"}
    if image.model_packages:
        arguments["MODEL_PACKAGES"] = image.model_packages
    flags = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    options = ["--isolation=chroot", "--layers", f"--volume={WHEELHOUSE}:/wheelhouse:ro", f"--file={image.dockerfile}", f"--tag={image.name}:build"]
    _buildah("bud", "-q", *options, *flags, str(REPOSITORY))
    with tempfile.TemporaryDirectory(dir=IMAGES, prefix="layout-") as layout:
        # Half of gzip's time, and smaller.
        _buildah("push", "-q", "--compression-format=zstd", f"{image.name}:build", f"oci:{layout}:build")
        write_archive(Path(layout), image.archive, image.name, TAGS, revision)


def _buildah(command: str, *arguments: str) -> None:
    # vfs, which works everywhere, would copy a gigabyte for every layer.
    storage = ["--storage-driver=overlay", f"--root={STORAGE}", f"--runroot={RUN}"]
    done = subprocess.run(["buildah", *storage, command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"buildah {command} {' '.join(arguments)} failed: {done.stdout[-2000:]}{done.stderr[-4000:]}")
