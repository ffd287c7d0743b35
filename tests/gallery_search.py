"""Search a gallery and write the results, as the command line does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lreid.gallery


def search_and_write(where: str | Path, images: Sequence[Path], out: Path, **options: Any) -> dict[str, Any]:
    results = lreid.gallery.query(where, images, device="cpu", **options)
    lreid.gallery.write_findings(results, out)
    return results
