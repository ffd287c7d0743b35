"""List data sets, check them against published counts, unpack archives, and cut images out of videos.

    lreid data list                                     # all data sets, and where lreid expects each
    lreid data check market1501 viper                   # every difference from the published counts
    lreid data check csv:shop/index.csv                 # every fault of your own list
    lreid data check my/folder                          # your images: one folder per person
    lreid data check my/folder --pattern "{pid}/{camid}_{n}.png"       # your own pattern of file names
    lreid data from-tracks gate.mp4 --tracks gate.txt --out gate     # a video with a tracker's results
    lreid data prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip
    lreid data prepare mevid --frames 8                 # eight frames of each tracklet of MEVID's archives

The exit status is 2 if a data set that was checked or prepared is not complete.
"""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = "folder of all data sets; image paths in a CSV file may be relative to it (DATA.ROOT, default: datasets)"
PATTERN = "pattern of image paths in your folders, such as {pid}/{camid}_{n}.png; lreid prints what it reads from ten"


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
    command("list", "list data sets, and the folder where lreid expects each", "NAME", f"{data_sets} (default: all)")
    check = command(
        "check", "compare data sets with their published counts", "NAME", f"{data_sets}; folders; CSV files"
    )
    check.add_argument("--pattern", default="", metavar="P", help=PATTERN)
    prepare = command("prepare", "unpack archives, and convert images where needed", "NAME", data_sets)
    prepare.add_argument(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="zip or tar file to unpack; repeat it for more (default: the archives in the data set's folder)",
    )

    prepare.add_argument(
        "--frames", type=int, default=0, metavar="N", help="frames per tracklet, if it has tracklets (default: 16)"
    )

    about = "video files, or folders in the layout of MOT Challenge or MTMC"
    _add_tracks(command("from-tracks", "cut images out of videos", "VIDEO", about))


def _add_tracks(tracks: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid data from-tracks``."""
    tracks.add_argument(
        "--tracks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="file of tracks, one per video: MOT Challenge format, or JSON of supervision or Ultralytics (default: "
        "gt/gt.txt of a folder)",
    )
    tracks.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    tracks.add_argument(
        "--every", type=float, default=0.5, metavar="S", help="seconds between images of a track (default: 0.5)"
    )
    tracks.add_argument(
        "--most", type=int, default=20, metavar="N", help="maximum number of images per track (default: 20)"
    )
    tracks.add_argument(
        "--min-height", type=int, default=64, metavar="PX", help="minimum height of a box (default: 64)"
    )
    tracks.add_argument(
        "--min-sharpness", type=float, default=0.0, metavar="V", help="minimum variance of the Laplacian (default: 0)"
    )
    tracks.add_argument(
        "--class",
        type=int,
        action="append",
        default=[],
        dest="classes",
        metavar="N",
        help="take boxes of this class, the eighth value of a line; repeat it for more (default: all classes, or "
        "pedestrians in gt.txt)",
    )
    tracks.add_argument(
        "--same-identities", action="store_true", help="a track number means the same person in all videos, as in MTMC"
    )
