"""`python -m images`: builds the images of engine, gateway and operator, and puts them on the nodes of the local cluster, where one is up."""

import sys
import time

from cluster import local, packages
from images.build import ALL_IMAGES, build_images
from images.load import load_images


def main() -> int:
    began = time.monotonic()
    packages.install_missing({"buildah": "buildah", "debootstrap": "debootstrap"})
    build_images()
    nodes = load_images(local.nodes()) if local.is_up() else []
    for image in ALL_IMAGES:
        sys.stdout.write(f"{image.archive}: {image.archive.stat().st_size / 1e6:.0f} MB\n")
    sys.stdout.write(f"{len(ALL_IMAGES)} images, loaded on {', '.join(nodes) or 'no node'}, in {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
