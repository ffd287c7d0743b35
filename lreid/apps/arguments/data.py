"""Show which data sets are there, check them, prepare their archives, and cut them out of videos.

    lreid data list                                     # all of them, and where each is expected
    lreid data check market1501 viper                   # every difference from the published counts
    lreid data check csv:shop/index.csv                 # every fault of your own list
    lreid data check my/folder                          # images of your own, a folder a person
    lreid data check my/folder --pattern "{pid}/{camid}_{n}.png"       # or named otherwise
    lreid data from-tracks gate.mp4 --tracks gate.txt --out gate     # a video and a tracker's results
    lreid data prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip

Exit status: 2 when a data set is checked or prepared and is not complete.
"""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = "DATA.ROOT, in which CSV files may name images, too (default: datasets)"
PATTERN = "of paths in folders of your images, such as {pid}/{camid}_{n}.png; ten names are shown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the commands of ``lreid data`` and their options."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str, names: str = "", about: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what)
        sub.set_defaults(action=name)
        if names:
            sub.add_argument("names", nargs="*" if name == "list" else "+", metavar=names, help=about)
        if name != "from-tracks":
            sub.add_argument("--root", type=Path, default=Path("datasets"), metavar="DIR", help=ROOT)
        return sub

    data_sets = "data sets, as in BENCHMARK.TRAIN"
    command("list", "all data sets, and where each is expected", "NAME", f"{data_sets} (default: all)")
    check = command("check", "compare with the published counts", "NAME", f"{data_sets}; folders and CSV files")
    check.add_argument("--pattern", default="", metavar="P", help=PATTERN)
    prepare = command("prepare", "unpack archives, and convert where that is needed", "NAME", data_sets)
    prepare.add_argument(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="zip or tar file to unpack; may be given several times (default: those in the data set's folder)",
    )

    about = "videos, or folders of MOT Challenge or MTMC"
    _add_tracks(command("from-tracks", "cut images out of videos", "VIDEO", about))


def _add_tracks(tracks: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid data from-tracks``."""
    tracks.add_argument(
        "--tracks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a tracker's results in the format of MOT Challenge, one for each video (default: gt/gt.txt of a folder)",
    )
    tracks.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    tracks.add_argument("--every", type=float, default=0.5, metavar="S", help="seconds between images (default: 0.5)")
    tracks.add_argument("--most", type=int, default=20, metavar="N", help="images of a track (default: 20)")
    tracks.add_argument("--min-height", type=int, default=64, metavar="PX", help="of a box (default: 64)")
    tracks.add_argument(
        "--min-sharpness", type=float, default=0.0, metavar="V", help="variance of the Laplacian (default: 0)"
    )
    tracks.add_argument(
        "--class",
        type=int,
        action="append",
        default=[],
        dest="classes",
        metavar="N",
        help="take boxes of this class, the eighth value of a line (repeat it for more; default: all, of gt.txt "
        "pedestrians)",
    )
    tracks.add_argument(
        "--same-identities", action="store_true", help="a number is the same person in all videos, as in MTMC"
    )
