"""What the tests of data sets share."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def shared_data() -> Path:
    """The folder with the two real CSV data sets."""
    next_to = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LREID_SHARED_DATA", next_to))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist (set LREID_SHARED_DATA)")
    return folder
