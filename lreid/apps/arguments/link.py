"""Link tracklets of several cameras to identities: one number per person, across cameras and days.

lreid link add linked day-1.yaml --checkpoint zoo:people     # videos with a tracker's results, or videos alone
lreid link add linked day-2.yaml                             # the next day; old identities do not change
lreid link name linked 17 anna
lreid link merge linked 17 23                                # 17 and 23 are one person
lreid link split linked 17 gate/20260302T080000/4            # this tracklet of 17 shows another person
lreid link apart linked 17 23                                # 17 and 23 are two people
lreid link undo linked
lreid link remove linked --identity 17                       # deletes crops, features and timeline

The YAML file names the cameras:

    cameras:
      gate: {video: gate.mp4, tracks: gate.txt, start: 2026-03-02T08:00:00}
      hall: {video: hall.mp4, tracks: hall.txt, start: 2026-03-02T08:00:00}
    travel: [[gate, hall, 10]]    # optional: minimum travel time, seconds (default: learned from 8 or more trips)

Track files are in the MOT Challenge format, or in the JSON format of supervision or Ultralytics. If a camera has no
track file, lreid detects and tracks moving objects; this needs a fixed camera. The output folder contains
identities.json, index.html, tracks/ with identities, and people.gallery for lreid search. To enrol people by name, run
lreid search build linked/people.gallery my/people.
"""

import argparse
from pathlib import Path
from typing import Any

from lreid.apps.arguments.search import DEVICE
from lreid.apps.cli import option

OLD = "delete tracklets that ended more than N days ago"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``lreid link`` and their options."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_linking(commands)
    for name, what in (
        ("merge", "record that two identities are one person"),
        ("apart", "record that two identities are two people"),
    ):
        sub = _command(commands, name, what)
        sub.add_argument("identities", nargs=2, metavar="IDENTITY", help="number or name of the identity")
    split = _command(commands, "split", "record that tracklets of an identity show another person")
    split.add_argument("identity", metavar="IDENTITY", help="number or name of the identity")
    split.add_argument("tracklets", nargs="+", metavar="TRACKLET", help="tracklet, such as gate/20260302T080000/4")
    name = _command(commands, "name", "give an identity a name")
    name.add_argument("identity", metavar="IDENTITY", help="number or name of the identity")
    name.add_argument("name", metavar="NAME", help="new name; unknown-NUMBER removes the name")
    _command(commands, "undo", "undo the last change")
    remove = _command(commands, "remove", "delete all data of an identity or of old tracklets; you cannot undo this")
    which = remove.add_mutually_exclusive_group(required=True)
    option(which, "--identity IDENTITY", "number or name of the identity to delete")
    option(which, "--keep-days N", OLD, type=float)


def _command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    sub = commands.add_parser(name, help=what)
    sub.set_defaults(action=name)
    sub.add_argument("folder", type=Path, metavar="DIR", help="folder that lreid link add creates")
    return sub


def _add_linking(commands: Any) -> None:
    add = _command(commands, "add", "link the tracklets of new recordings with each other and with earlier tracklets")
    add.add_argument("cameras", type=Path, metavar="YAML", help="YAML file that lists the cameras")
    option(add, "--checkpoint FILE", "model: a checkpoint or zoo:NAME (needed for a new folder)", type=Path)
    option(add, "--device", DEVICE, "auto")
    option(add, "--every S", "seconds between the crops of a tracklet", 1.0)
    option(add, "--most N", "maximum number of crops per tracklet", 8)
    which = "class of the boxes to link (eighth value of a line); repeat the option for more (default: all)"
    option(add, "--class N", which, [], type=int, dest="classes")
    option(add, "--keep-days N", OLD, type=float)
    add.add_argument("--online", action="store_true", help="link each tracklet after its end, without later tracklets")
    option(add, "--delay S", "with --online: maximum seconds from the end of a tracklet until it is linked", 10.0)
    relink = _command(commands, "relink", "link all tracklets again, and apply the corrections")
    for sub in (add, relink):
        linked = "minimum mean cosine similarity of linked tracklets (default: calibrated)"
        option(sub, "--threshold T", linked, type=float)
        rate = "share of pairs of different people that may reach the calibrated threshold"
        option(sub, "--false-accept-rate RATE", rate, 0.002)
        sub.add_argument("--raw", action="store_true", help="do not standardise features per recording")
