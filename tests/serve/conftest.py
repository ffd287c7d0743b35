"""A gallery to serve, queries, and the server as a process of its own."""

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoints import write_checkpoint, write_images
from processes import start_command, until

from lreid import search
from lreid.data.synthetic import load_synthetic

Serve = Callable[..., tuple[int, str, Path]]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``people.gallery`` of the images in ``people/``, calibrated, and ``query/`` with images of the same people."""
    folder = tmp_path_factory.mktemp("served")
    drawn = load_synthetic("plaza", train_identities=1, test_identities=8, images_per_identity=6, distractors=2, seed=0)
    write_images(folder / "people", drawn.gallery, "p{pid}/c{camid}_{number}.png")
    write_images(folder / "query", drawn.query, "p{pid}/c{camid}_{number}.png")
    write_checkpoint(folder / "model.pt", MODEL__BACKBONE="small")  # which a process of its own knows, too
    file = folder / "people.gallery"
    search.build(file, folder / "model.pt", search.list_images([folder / "people"], "gallery"), device="cpu")
    labelled = search.list_images([folder / "query"], "query")
    search.calibrate(file, labelled, false_accept_rate=0.2, device="cpu")
    return folder


@pytest.fixture
def gallery(world: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copy(world / "people.gallery", tmp_path / "people.gallery")


@pytest.fixture
def queries(world: Path) -> list[Path]:
    return sorted((world / "query").rglob("*.png"))


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts ``lreid serve``; gives the process, its address, once it answers, and the file that it prints into."""
    started: list[int] = []

    def begin(*words: object, **environment: str) -> tuple[int, str, Path]:
        printed = tmp_path_factory.mktemp("served") / "printed.txt"
        command = ["serve", *words, "--port", "0", "--device", "cpu"]
        started.append(start_command(command, printed, **environment))
        until(lambda: "\n" in printed.read_text())
        address = re.search(r"http://\S+:\d+/", printed.read_text())
        assert address, printed.read_text()
        return started[-1], address[0], printed

    yield begin
    for process in started:
        with contextlib.suppress(ChildProcessError):  # a test has waited for it
            if not os.waitpid(process, os.WNOHANG)[0]:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
