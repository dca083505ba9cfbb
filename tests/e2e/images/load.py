"""The built images → the nodes of the local cluster."""

from collections.abc import Sequence

from cluster.node import Node
from images.build import ALL_IMAGES
from images.stamps import is_current, stamped


def load_images(nodes: Sequence[Node]) -> list[str]:
    """The nodes' names; a node that has an archive already gets it no second time."""
    for node in nodes:
        for image in ALL_IMAGES:
            # In the node's own folder, so that it goes when the node goes.
            stamp, state = node.folder / image.stamp.name, image.stamp.read_text(encoding="utf-8")
            if not is_current(stamp, state):
                with stamped(stamp, state):
                    node.load_image(image.archive)
    return [node.name for node in nodes]
