"""Ask a gallery who is on images, as the command line does: search it and write what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lreid import gallery as search
from lreid.gallery import Filter


def ask(
    where: str | Path, images: Sequence[Path], out: Path, *, top: int = 10, other_cameras: bool = False, **more: Any
) -> dict[str, Any]:
    wanted = search.Wanted(top, other_cameras, more.pop("only", Filter()), more.pop("camera", None))
    results = search.query(where, images, wanted, device="cpu", **more)
    search.write_findings(results, out)
    return results
