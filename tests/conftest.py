"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from made_results import results, run_folder  # noqa: F401 (fixtures)

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the networks of the tests are tiny

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def repository() -> Path:
    """The top of the source tree."""
    return REPOSITORY


def pytest_sessionstart() -> None:
    """Torch decides at its first gradient whether processes may be forked; after torch.export it decides against."""
    import torch  # now that it sees OMP_NUM_THREADS

    torch.ones((), requires_grad=True).backward()


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """Sums of one thread and of two differ in their last bits, so no test may leave another number behind."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
