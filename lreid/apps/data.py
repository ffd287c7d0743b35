"""List data sets, compare them with published counts, unpack archives, and cut images of people out of videos.

    lreid data list                                     # all data sets and their folders
    lreid data check market1501 viper                   # prints every difference from the published counts
    lreid data check csv:shop/index.csv                 # prints all problems of your own list
    lreid data check my/folder                          # checks your images: one folder per person
    lreid data check my/folder --pattern "{pid}/{camid}_{n}.png"       # your own pattern of file names
    lreid data from-tracks gate.mp4 --tracks gate.txt --out gate     # a video with a tracker's results
    lreid data prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip
    lreid data prepare mevid --frames 8                 # eight frames of each tracklet of MEVID's archives

The exit status of check and prepare is 2 if a data set is not complete.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from lreid.apps.arguments import flag, option, subcommand
from lreid.errors import InputError, counted, naming_keys, require

if TYPE_CHECKING:
    from lreid.data.inventory import Finding

ROOT = "folder of all data sets; image paths in a CSV file may be relative to DIR (DATA.ROOT, default: datasets)"
PATTERN = "pattern of image paths in your folders, such as {pid}/{camid}_{n}.png; lreid prints the labels of ten paths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``lreid data`` and their options."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Callable[[argparse.Namespace], None], what: str, name: str, about: str) -> argparse.ArgumentParser:
        sub = subcommand(commands, run, what)
        sub.add_argument("names", nargs="*" if run is _list else "+", metavar=name, help=about)
        if run is not _from_tracks:
            option(sub, "--root DIR", ROOT, Path("datasets"))
        return sub

    data_sets = "names of data sets, as in BENCHMARK.TRAIN"
    command(_list, "list data sets and their folders", "NAME", f"{data_sets} (default: all)")
    check = command(_check, "compare data sets with published counts", "NAME", f"{data_sets}, folders or CSV files")
    option(check, "--pattern P", PATTERN, "")
    prepare = command(_prepare, "unpack archives, and convert images if needed", "NAME", data_sets)
    archives = "zip or tar file to unpack; repeat the option for more (default: archives in the data set's folder)"
    option(prepare, "--archive FILE", archives, [], type=Path)
    option(prepare, "--frames N", "frames to unpack per tracklet, for data sets of tracklets (default: 16)", 0)
    about = "video files, or folders in the layout of MOT Challenge or MTMC"
    _add_tracks(command(_from_tracks, "cut images of people out of videos", "VIDEO", about))


def _add_tracks(tracks: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid data from-tracks``."""
    formats = "MOT Challenge format, or JSON of supervision or Ultralytics (default: gt/gt.txt of a folder)"
    option(tracks, "--tracks FILE", f"file with the tracks of a video, one file per video: {formats}", [], type=Path)
    option(tracks, "--out DIR", "folder for the images and their list", type=Path, required=True)
    option(tracks, "--every S", "take the sharpest image of a track from every S seconds", 0.5)
    option(tracks, "--most N", "maximum number of images per track", 20)
    option(tracks, "--min-height PX", "minimum height of a box in pixels", 64)
    option(tracks, "--min-sharpness V", "minimum sharpness of an image, as variance of the Laplacian (default: 0)", 0.0)
    which = "the eighth value of a line; repeat the option for more (default: all, or pedestrians in gt.txt)"
    option(tracks, "--class N", f"class of the boxes to use, {which}", [], type=int, dest="classes")
    flag(tracks, "--same-identities", "a track number means the same person in all videos, as in MTMC")


@naming_keys(pattern="--pattern", root="--root")
def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    args.run_command(args)


def _list(args: argparse.Namespace) -> None:
    from lreid.data.datasets import specs
    from lreid.data.inventory import check_dataset, counts_table

    print(counts_table([finding for name in args.names or specs() for finding in check_dataset(name, args.root)]))


def _prepare(args: argparse.Namespace) -> None:
    from lreid.data.inventory import check_dataset, counts_table
    from lreid.data.prepare import prepare

    if len(args.names) > 1 and args.archive:
        raise InputError("prepare: --archive needs exactly one data set; name one")
    require(args.frames >= 0, "--frames", args.frames, "a number of frames per tracklet")
    for name in args.names:
        prepare(name, args.root, args.archive, frames=args.frames)
    findings = [finding for name in args.names for finding in check_dataset(name, args.root, files=True)]
    print(counts_table(findings))
    _require_complete(findings)


def _check(args: argparse.Namespace) -> None:
    from lreid.data.custom import source_of
    from lreid.data.inventory import check_dataset, counts_table
    from lreid.data.listing import Pattern, preview

    for name in filter(os.path.isdir, args.names if args.pattern else ()):
        print(preview(Path(name), Pattern(args.pattern)))
    sources = {name: source_of(Path(name), args.root) if _is_path(name) else name for name in args.names}
    by_name = {name: check_dataset(sources[name], args.root, files=True, pattern=args.pattern) for name in sources}
    findings = [*chain.from_iterable(by_name.values())]
    print(counts_table(findings))
    for name, each in by_name.items():
        loaded = [one.data_set for one in each if one.data_set is not None]
        if _is_path(name) and any(len({record.pid for record in one.train}) > 1 for one in loaded):
            from lreid.apps.custom import plan  # imported here, because it loads torch, which nothing else here needs

            print(plan(Path(name), [], ["DATA.ROOT", str(args.root), "DATA.PATTERN", args.pattern]).text)
    _require_complete(findings)


def _require_complete(findings: "Sequence[Finding]") -> None:
    wrong = [finding.name for finding in findings if finding.status not in ("complete", "there")]
    if wrong:
        raise InputError(f"not complete: {', '.join(wrong)}")


def _from_tracks(args: argparse.Namespace) -> None:
    from lreid.data.tracks import Choice, from_tracks

    choice = Choice(args.every, args.most, args.min_height, args.min_sharpness, args.classes)
    count = from_tracks(list(map(Path, args.names)), args.tracks, args.out, choice, same=args.same_identities)
    print(f"{args.out}: {counted(count, 'image')}; train on them by: lreid train {args.out}")


def _is_path(name: str) -> bool:
    from lreid.data.datasets import find_dataset

    return find_dataset(name) is None and os.path.exists(name)
