"""Count the modules and lines of lreid that Python imports to train DwoPP, to test it and to search with it.

    python tools/count_modules.py              # exit status 1 above 100 modules
    python tools/count_modules.py --most 90

One process trains DwoPP on a tiny version of the built-in benchmark, tests it, builds a gallery and searches it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MOST = 100
TINY = (
    "DEVICE cpu DATA.WORKERS 0 SYNTHETIC.TRAIN_IDENTITIES 12 SYNTHETIC.TEST_IDENTITIES 6 "
    "SYNTHETIC.IMAGES_PER_IDENTITY 4 BENCHMARK.TASKS_PER_DATASET 2 EPISODE.IDENTITIES 2 EPISODE.SUPPORT 2 "
    "BATCH.IDENTITIES 2 BATCH.IMAGES 3 INPUT.HEIGHT 32 INPUT.WIDTH 16 TRAIN.EPOCHS 1"
)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--most",
        type=int,
        default=MOST,
        metavar="N",
        help="exit with status 1 if there are more modules (default: 100)",
    )
    return options


def walk_the_path(folder: Path) -> Iterator[str]:
    """Train, test, build a gallery and search it, all in one folder; yield the name of each finished step."""
    from lreid.apps.cli import run_command

    os.chdir(folder)
    for line in (
        f"train --out run {TINY}",
        "test --checkpoint run",
        "search build people.gallery gallery --checkpoint run/checkpoints/task-02.pt",
        "search query people.gallery query",
    ):
        command, *words = line.split()
        if status := run_command(command, words, command):
            sys.exit(status)
        if command == "train":
            write_images()
        yield command


def write_images() -> None:
    """Write synthetic people into the folders query and gallery."""
    from PIL import Image

    from lreid.data.synthetic import draw, load_synthetic

    images = load_synthetic(
        "plaza", train_identities=1, test_identities=3, images_per_identity=3, distractors=0, seed=0
    )
    for name, records in (("query", images.query), ("gallery", images.gallery)):
        Path(name).mkdir()
        for number, record in enumerate(records):
            Image.fromarray(draw(record.path)).save(f"{name}/{record.pid:04d}_c{record.camid}s1_{number:03d}.png")


def imported() -> dict[str, int]:
    """Return the names of the imported modules of lreid, with their numbers of lines."""
    names = sorted(name for name in sys.modules if name.partition(".")[0] == "lreid")
    return {name: len(Path(str(sys.modules[name].__file__)).read_text().splitlines()) for name in names}


def main() -> None:
    most = parser().parse_args().most
    steps = []
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        for command in walk_the_path(Path(folder)):
            steps.append((command, imported()))
        os.chdir("/")
    modules = steps[-1][1]
    print("\n".join(f"{name} {lines}" for name, lines in modules.items()))
    for command, loaded in steps:
        print(f"after {command}: {len(loaded)} modules, {sum(loaded.values())} lines")
    print(f"{len(modules)} modules of lreid are imported, of at most {most}")
    sys.exit(len(modules) > most)


if __name__ == "__main__":
    main()
