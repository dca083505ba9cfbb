"""The pause program and its image, `localhost/pause:1`: a static C program, so that no image has to be pulled."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from cluster.paths import BINARIES, MODULES

IMAGE = "localhost/pause:1"
SOURCE = MODULES / "pause.c"


def build_pause() -> Path:
    """The folder with `pause` and `pause.tar`, the image as an OCI archive."""
    folder = BINARIES / f"pause-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    program, archive = folder / "pause", folder / "pause.tar"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
        archive.write_bytes(oci_archive(program.read_bytes()))
    return folder


def oci_archive(program: bytes) -> bytes:
    """An OCI archive of one image with one layer: the program as /pause."""
    layer = tar({"pause": program})
    blobs: dict[str, bytes] = {}

    def add(blob: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(blob).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = blob
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(blob)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(json.dumps(config).encode(), "config.v1+json"),
        "layers": [add(gzip.compress(layer, mtime=0), "layer.v1.tar+gzip")],
    }
    descriptor = {**add(json.dumps(manifest).encode(), "manifest.v1+json"), "annotations": {"io.containerd.image.name": IMAGE}}
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    return tar({"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs})


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
