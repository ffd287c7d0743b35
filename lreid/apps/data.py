"""Show which data sets are there, compare them with published counts, and prepare their archives."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from lreid.data.contact_sheet import contact_sheet
from lreid.data.datasets import find, specs
from lreid.data.inventory import Finding, look, table
from lreid.data.own import source_of
from lreid.data.prepare import prepare
from lreid.data.records import DataSet
from lreid.data.tracks import Choice, from_tracks
from lreid.errors import InputError, counted
from lreid.files import write_text


def run(args: argparse.Namespace) -> None:
    """Does what the chosen command says."""
    actions = {"list": _list, "check": _check, "prepare": _prepare, "from-tracks": _cut}
    actions[args.action](args)


def _list(args: argparse.Namespace) -> None:
    print(table([found for name in args.names or specs() for found in look(name, args.root)]))


def _prepare(args: argparse.Namespace) -> None:
    if len(args.names) > 1 and args.archive:
        raise InputError("prepare: name one data set for --archive")
    for name in args.names:
        prepare(name, args.root, args.archive)
    findings = [found for name in args.names for found in look(name, args.root, files=True)]
    print(table(findings))
    _require_complete(findings)


def _check(args: argparse.Namespace) -> None:
    if args.identities < 1:
        raise InputError(f"--identities is {args.identities}; must be 1 or more")
    found = {name: look(_source(name), args.root, files=True) for name in args.names}
    findings = [*chain.from_iterable(found.values())]
    print(table(findings))
    for name, each in found.items():
        if _is_path(name) and any(len({record.pid for record in one.train}) > 1 for one in _there(each)):
            from lreid.apps.own import plan  # torch, which no other command needs

            print(plan(Path(name), [], ["DATA.ROOT", str(args.root)]).text)
    if args.sheet is not None:
        write_text(args.sheet, contact_sheet(_there(findings), identities=args.identities))
        print(f"contact sheet: {args.sheet}")
    _require_complete(findings)


def _require_complete(findings: Sequence[Finding]) -> None:
    wrong = [found.name for found in findings if found.status not in ("complete", "there")]
    if wrong:
        raise InputError(f"not complete: {', '.join(wrong)}")


def _cut(args: argparse.Namespace) -> None:
    choice = Choice(args.every, args.most, args.min_height, args.min_sharpness, args.classes)
    count = from_tracks(list(map(Path, args.names)), args.tracks, args.out, choice, same=args.same_identities)
    print(f"{args.out}: {counted(count, 'image')}; train on them by: lreid train {args.out}")


def _there(findings: Sequence[Finding]) -> list[DataSet]:
    return [found.data_set for found in findings if found.data_set is not None]


def _is_path(name: str) -> bool:
    return find(name) is None and os.path.exists(name)


def _source(name: str) -> str:
    """A name as in ``BENCHMARK.TRAIN`` of what may be a folder or a file."""
    return source_of(Path(name)) if _is_path(name) else name
