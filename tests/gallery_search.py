"""Build, calibrate and search galleries of folders, as the command line does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lreid.gallery
from lreid.gallery import Gallery


def build_gallery(where: str | Path, checkpoint: Path, sources: Sequence[Path], **options: Any) -> Gallery:
    images = lreid.gallery.list_images(sources, "gallery")
    return lreid.gallery.build(where, checkpoint, images, device="cpu", **options)


def calibrate_gallery(where: str | Path, sources: Sequence[Path], **options: Any) -> dict[str, Any]:
    return lreid.gallery.calibrate(where, lreid.gallery.list_images(sources, "query"), device="cpu", **options)


def search_and_write(where: str | Path, images: Sequence[Path], out: Path, **options: Any) -> dict[str, Any]:
    results = lreid.gallery.query(where, images, device="cpu", **options)
    lreid.gallery.write_findings(results, out)
    return results
