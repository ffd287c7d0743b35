"""Where the galleries of the tests are: files, and two databases of Milvus Lite that all tests of a session share."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from milvus_lite_server import LiteServer, require_milvus

numbers = itertools.count()


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a database in this process."""
    require_milvus()
    from lreid.gallery.milvus_client import connect

    folder = tmp_path_factory.mktemp("milvus")
    yield f"milvus:{folder}/lite.db"
    connect(f"{folder}/lite.db").close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteServer]:
    require_milvus()
    running = LiteServer(tmp_path_factory.mktemp("server") / "data")
    yield running
    running.kill()


@pytest.fixture(params=["file", "lite", "server"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Names a place where there is no gallery yet, on each engine in turn."""
    if request.param == "file":
        return lambda: str(tmp_path / f"{next(numbers)}.gallery")
    base = request.getfixturevalue("milvus") if request.param == "lite" else None
    base = base or request.getfixturevalue("server").where
    return lambda: f"{base}/test_{os.getpid()}_{next(numbers)}"


@pytest.fixture
def lite_place(milvus: str) -> str:
    return f"{milvus}/test_{os.getpid()}_{next(numbers)}"
