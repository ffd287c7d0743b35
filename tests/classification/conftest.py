"""Data sets of classification by name, whose tiny archives pass torchvision's check."""

from pathlib import Path

import pytest
from torchvision.datasets import cifar, svhn

import lreid.classification  # noqa: F401, registers the data sets


@pytest.fixture
def any_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets torchvision read archives with other checksums than the authors'."""
    for module in (cifar, svhn):
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: Path(path).is_file())
