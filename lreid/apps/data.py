"""List available data sets, compare them with published counts, and prepare their archives."""

import argparse
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from lreid.data.custom import source_of
from lreid.data.datasets import find, specs
from lreid.data.inventory import Finding, look, table
from lreid.data.listing import preview
from lreid.data.pattern import Pattern
from lreid.data.prepare import prepare
from lreid.data.tracks import Choice, from_tracks
from lreid.errors import InputError, counted, naming_keys


@naming_keys(pattern="--pattern", root="--root")
def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    actions = {"list": _list, "check": _check, "prepare": _prepare, "from-tracks": _cut}
    actions[args.action](args)


def _list(args: argparse.Namespace) -> None:
    print(table([finding for name in args.names or specs() for finding in look(name, args.root)]))


def _prepare(args: argparse.Namespace) -> None:
    if len(args.names) > 1 and args.archive:
        raise InputError("prepare: --archive needs exactly one data set; name one")
    if args.frames < 0:
        raise InputError(f"--frames: {args.frames} is below 1; give the number of frames per tracklet")
    for name in args.names:
        prepare(name, args.root, args.archive, frames=args.frames)
    findings = [finding for name in args.names for finding in look(name, args.root, files=True)]
    print(table(findings))
    _require_complete(findings)


def _check(args: argparse.Namespace) -> None:
    for name in filter(os.path.isdir, args.names if args.pattern else ()):
        print(preview(Path(name), Pattern(args.pattern)))
    sources = {name: source_of(Path(name), args.root) if _is_path(name) else name for name in args.names}
    by_name = {name: look(sources[name], args.root, files=True, pattern=args.pattern) for name in sources}
    findings = [*chain.from_iterable(by_name.values())]
    print(table(findings))
    for name, each in by_name.items():
        loaded = [one.data_set for one in each if one.data_set is not None]
        if _is_path(name) and any(len({record.pid for record in one.train}) > 1 for one in loaded):
            from lreid.apps.custom import plan  # imported here, because it loads torch, which nothing else here needs

            print(plan(Path(name), [], ["DATA.ROOT", str(args.root), "DATA.PATTERN", args.pattern]).text)
    _require_complete(findings)


def _require_complete(findings: Sequence[Finding]) -> None:
    wrong = [finding.name for finding in findings if finding.status not in ("complete", "there")]
    if wrong:
        raise InputError(f"not complete: {', '.join(wrong)}")


def _cut(args: argparse.Namespace) -> None:
    choice = Choice(args.every, args.most, args.min_height, args.min_sharpness, args.classes)
    count = from_tracks(list(map(Path, args.names)), args.tracks, args.out, choice, same=args.same_identities)
    print(f"{args.out}: {counted(count, 'image')}; train on them by: lreid train {args.out}")


def _is_path(name: str) -> bool:
    return find(name) is None and os.path.exists(name)
