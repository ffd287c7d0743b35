"""Names of entries."""

import os
from pathlib import Path

PREFIX = "zoo:"  # prefix of the name of an entry
# The default entries for images of people; the small one for images that are no larger than its input.
PEOPLE, SMALL_PEOPLE = "zoo:people", "zoo:people-small"
VEHICLES, SMALL_VEHICLES = "zoo:vehicles", "zoo:vehicles-small"


def is_entry(source: str | Path) -> bool:
    """Check whether a model name means a zoo entry: ``zoo:NAME``, or ``NAME`` if there is no file of this name."""
    name = str(source)
    return name.startswith(PREFIX) or not (Path(name).suffix or os.sep in name or Path(name).exists())
