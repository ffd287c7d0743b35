"""Link tracklets of several cameras to identities: one number per person, across cameras and days.

lreid link add linked day-1.yaml --checkpoint zoo:people     # videos with a tracker's results
lreid link add linked day-2.yaml                             # the next day; old identities do not change
lreid link name linked 17 anna
lreid link merge linked 17 23                                # 17 and 23 are one person
lreid link split linked 17 gate/20260302T080000/4            # this tracklet of 17 shows another person
lreid link apart linked 17 23                                # 17 and 23 are two people
lreid link undo linked
lreid link remove linked --identity 17                       # deletes crops, features and timeline

The YAML file names the cameras:

    cameras:
      gate: {video: gate.mp4, tracks: gate.csv, start: 2026-03-02T08:00:00}
      hall: {video: hall.mp4, tracks: hall.csv, start: 2026-03-02T08:00:00}
    travel: [[gate, hall, 10]]    # optional: minimum travel time, seconds (default: learned from 8 or more trips)

Run a tracker first: docs/how-to/link.md has a script. Track files are in the MOT Challenge format, or the CSV or JSON
of supervision or Ultralytics. Without a track file, lreid takes everything that moves for a person, as a last resort;
this needs a fixed camera. The output folder contains identities.json, index.html, tracks/ with identities, and
people.gallery for lreid search. To enrol people by name, run lreid search build linked/people.gallery my/people.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lreid.apps.arguments import DEVICE, flag, option, require_device, require_model, require_path
from lreid.errors import counted, naming_keys, require

if TYPE_CHECKING:
    from lreid.link.assign import LinkOptions
    from lreid.link.record import LinkRecord

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
    flag(add, "--online", "link each tracklet after its end, without later tracklets")
    option(add, "--delay S", "with --online: maximum seconds from the end of a tracklet until it is linked", 10.0)
    relink = _command(commands, "relink", "link all tracklets again, and apply the corrections")
    for sub in (add, relink):
        least = "minimum mean cosine similarity of linked tracklets (default: calibrated, else stored, else the card's)"
        option(sub, "--threshold T", least, type=float)
        rate = "share of pairs of different people that may reach the calibrated threshold"
        option(sub, "--false-accept-rate RATE", rate, 0.002)
        flag(sub, "--raw", "do not standardise features per recording")


@naming_keys(device="--device")
def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    _check(args)
    from lreid.data.tracks import Choice
    from lreid.link import commands
    from lreid.link.cutting import read_cameras
    from lreid.link.folder import PAGE
    from lreid.utils.identities import label_text
    from lreid.utils.reading import escaped

    action, folder = args.action, args.folder
    if action == "add":
        clips, travel = read_cameras(args.cameras)
        choice = Choice(args.every, args.most, classes=args.classes)
        record = commands.add_recordings(
            *(folder, clips, travel),
            checkpoint=args.checkpoint,
            options=_options(args, args.delay if args.online else None),
            choice=choice,
            keep_days=args.keep_days,
            device=args.device,
        )
    elif action == "relink":
        record = commands.relink(folder, _options(args, None))
    elif action == "remove":
        count = commands.remove_tracklets(folder, label_text(escaped(args.identity)), keep_days=args.keep_days)
        print(f"{folder}: {counted(count, 'tracklet')} removed")
        return
    elif action == "undo":
        record = commands.correct(folder, "", lambda record: print(f"undone: {record.undo()}"))
    else:
        record = _correct(args)
    print(f"{folder}: {counted(len(record.identities), 'identity')}, {counted(len(record.tracklets), 'tracklet')}")
    print(f"page: {folder / PAGE}")


def _check(args: argparse.Namespace) -> None:
    from lreid.utils.files import require_writable

    if args.action != "add":
        require_path(args.folder)
        return
    require_writable(args.folder / "identities.json")
    require_device(args.device)
    require_path(args.cameras)
    require_model(args.checkpoint)
    if not args.checkpoint:
        require_path(args.folder / "people.gallery", "pass --checkpoint, such as zoo:people")


def _options(args: argparse.Namespace, delay: float | None) -> "LinkOptions":
    from lreid.link.assign import LinkOptions

    least, rate = args.threshold, args.false_accept_rate
    require(least is None or -1 <= least <= 1, "--threshold", least, "a cosine similarity from -1 to 1")
    require(0 <= rate < 1, "--false-accept-rate", rate, "at least 0 and below 1")
    require(delay is None or delay >= 0, "--delay", delay, "0 or more seconds")
    return LinkOptions(least, rate, not args.raw, delay)


def _correct(args: argparse.Namespace) -> "LinkRecord":
    from lreid.link import commands
    from lreid.utils.identities import label_text
    from lreid.utils.reading import escaped

    if args.action == "split":
        identity, words = label_text(args.identity), label_text(args.tracklets)
        return commands.correct(args.folder, f"split {identity}", lambda record: record.split(identity, words))
    if args.action == "name":
        return commands.rename(args.folder, *label_text(escaped([args.identity, args.name])))
    words = label_text(escaped(args.identities))
    if args.action == "merge":
        return commands.merge(args.folder, *words)
    return commands.correct(args.folder, " ".join(["apart", *words]), lambda record: record.apart(*words))
