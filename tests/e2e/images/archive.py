"""One OCI archive with an image under several tags; the tags differ in a label, so that they are different images with the same layers."""

import copy
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REVISION = "org.opencontainers.image.revision"


def write_archive(layout: Path, archive: Path, name: str, tags: Sequence[str], revision: str) -> None:
    """From a folder in OCI image layout with one image; each tag's revision label is `<revision>-<tag>`."""
    manifest = _blob(layout, json.loads((layout / "index.json").read_text(encoding="utf-8"))["manifests"][0]["digest"])
    config = _blob(layout, manifest["config"]["digest"])
    unfinished = archive.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        descriptors = [_add_tag(tar, manifest, config, f"{name}:{tag}", f"{revision}-{tag}") for tag in tags]
        for layer in {layer["digest"]: None for layer in manifest["layers"]}:
            tar.add(_path(layout, layer), arcname=_name(layer))
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode())
    os.replace(unfinished, archive)


def _add_tag(tar: tarfile.TarFile, manifest: dict[str, Any], config: dict[str, Any], reference: str, revision: str) -> dict[str, Any]:
    labeled = copy.deepcopy(config)
    labeled["config"]["Labels"][REVISION] = revision
    descriptor = _add_blob(tar, {**manifest, "config": {**manifest["config"], **_add_blob(tar, labeled)}})
    annotations = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    return {**descriptor, "mediaType": "application/vnd.oci.image.manifest.v1+json", "annotations": annotations}


def _add_blob(tar: tarfile.TarFile, content: dict[str, Any]) -> dict[str, Any]:
    blob = json.dumps(content).encode()
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    _add(tar, _name(digest), blob)
    return {"digest": digest, "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_path(layout, digest).read_bytes())
    return content


def _path(layout: Path, digest: str) -> Path:
    return layout / _name(digest)


def _name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
