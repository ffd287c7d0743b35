"""Run the commands of ``lreid link``."""

import argparse

from lreid.data.tracks import Choice
from lreid.errors import InputError, counted, naming_keys
from lreid.link import commands
from lreid.link.assign import Options
from lreid.link.cutting import read_cameras
from lreid.link.folder import PAGE
from lreid.link.offline import Rule
from lreid.link.record import Record
from lreid.utils.reading import escaped


@naming_keys(device="--device")
def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    action, folder = args.action, args.folder
    if action == "add":
        clips, travel = read_cameras(args.cameras)
        choice = Choice(args.every, args.most, classes=args.classes)
        record = commands.add(
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
        count = commands.remove(folder, escaped(args.identity), keep_days=args.keep_days)
        print(f"{folder}: {counted(count, 'tracklet')} removed")
        return
    elif action == "undo":
        record = commands.correct(folder, "", lambda record: print(f"undone: {record.undo()}"))
    else:
        record = _correct(args)
    print(f"{folder}: {counted(len(record.identities), 'identity')}, {counted(len(record.tracklets), 'tracklet')}")
    print(f"page: {folder / PAGE}")


def _options(args: argparse.Namespace, delay: float | None) -> Options:
    if args.threshold is not None and not -1 <= args.threshold <= 1:
        raise InputError(f"--threshold is {args.threshold:g}; it must be a cosine similarity from -1 to 1")
    if not 0 <= args.false_accept_rate < 1:
        raise InputError(f"--false-accept-rate is {args.false_accept_rate:g}; must be at least 0 and below 1")
    if delay is not None and not delay >= 0:
        raise InputError(f"--delay is {delay:g}; give seconds, 0 or more")
    return Options(Rule(args.threshold, args.false_accept_rate), not args.raw, delay)


def _correct(args: argparse.Namespace) -> Record:
    if args.action == "split":
        identity, words = args.identity, args.tracklets
        return commands.correct(args.folder, f"split {identity}", lambda record: record.split(identity, words))
    if args.action == "name":
        return commands.rename(args.folder, *escaped([args.identity, args.name]))
    words = escaped(args.identities)
    change = {"merge": Record.merge, "apart": Record.apart}[args.action]
    return commands.correct(args.folder, " ".join([args.action, *words]), lambda record: change(record, *words))
