"""A gallery to serve, queries, and the server as a process of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery, calibrate_gallery

Serve = Callable[..., tuple[subprocess.Popen, str]]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``people.gallery`` of the images in ``people/``, calibrated, and ``query/`` with images of the same people."""
    folder = tmp_path_factory.mktemp("served")
    people = synthetic_people(8, 6, distractors=2)
    write_images(folder / "people", people.gallery, "p{pid}/c{camid}_{number}.png")
    write_images(folder / "query", people.query, "p{pid}/c{camid}_{number}.png")
    write_checkpoint(folder / "model.pt", MODEL__BACKBONE="small")  # a backbone that every process knows
    build_gallery(folder / "people.gallery", folder / "model.pt", [folder / "people"])
    calibrate_gallery(folder / "people.gallery", [folder / "query"], false_accept_rate=0.2)
    return folder


@pytest.fixture
def gallery(world: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copy(world / "people.gallery", tmp_path / "people.gallery")


@pytest.fixture
def queries(world: Path) -> list[Path]:
    return sorted((world / "query").rglob("*.png"))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts ``lreid serve`` and gives the process and its address, once it answers."""
    started: list[subprocess.Popen] = []

    def start(*words: object, **environment: str) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-m", "lreid", "serve", *map(str, words), "--port", "0", "--device", "cpu"]
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
        process = subprocess.Popen(command, env=paths, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        line = process.stdout.readline()
        address = re.search(r"http://\S+:\d+/", line)
        assert address, line + process.stderr.read()
        return process, address[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()
