"""Where built images and what they are built of outlive a run: all of it outside the checkout."""

from pathlib import Path

from cluster.paths import CACHE

REPOSITORY = Path(__file__).parents[3]
IMAGES = CACHE / "images"
WHEELHOUSE = IMAGES / "wheelhouse"
STORAGE = IMAGES / "storage"
RUN = Path("/run/stoker-images")
SHARED_WHEELS = REPOSITORY.parent / "shared" / "wheels"
