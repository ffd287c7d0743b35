"""Show which data sets are there, compare them with published counts, prepare their archives, and render people."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lreid.apps.arguments.data import RENDERING
from lreid.data.contact_sheet import contact_sheet
from lreid.data.datasets import specs
from lreid.data.inventory import Finding, look, table
from lreid.data.own import source_of
from lreid.data.prepare import prepare
from lreid.data.proposal import propose
from lreid.data.tracks import Choice, from_tracks
from lreid.errors import ArgumentError, InputError
from lreid.files import write_text


def run(args: argparse.Namespace) -> None:
    """Does what the chosen command says."""
    actions = {"list": _list, "check": _check, "prepare": _prepare, "from-tracks": _cut, "render": _render}
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
    names = [name if name in specs() else _source(name) for name in args.names]
    findings = [found for name in names for found in look(name, args.root, files=True)]
    print(table(findings))
    there = [(found.name, found.data_set) for found in findings if found.data_set is not None]
    for name, data_set in there:
        if name not in specs() and len({record.pid for record in data_set.train}) > 1:
            print(
                f"{name}, proposed: {' '.join(f'{key} {value}' for key, value in propose([data_set]).keys().items())}"
            )
    if args.sheet is not None:
        write_text(args.sheet, contact_sheet([data_set for _, data_set in there], identities=args.identities))
        print(f"contact sheet: {args.sheet}")
    _require_complete(findings)


def _require_complete(findings: Sequence[Finding]) -> None:
    wrong = [found.name for found in findings if found.status not in ("complete", "there")]
    if wrong:
        raise InputError(f"not complete: {', '.join(wrong)}")


def _cut(args: argparse.Namespace) -> None:
    choice = Choice(args.every, args.most, args.min_height, args.min_sharpness)
    count = from_tracks(list(map(Path, args.names)), args.tracks, args.out, choice, same=args.same_identities)
    print(f"{args.out}: {count} images; train on them by: lreid train {args.out}")


def _source(name: str) -> str:
    """A name as in ``BENCHMARK.TRAIN`` of what may be a folder or a file."""
    return source_of(Path(name)) if os.path.exists(name) else name


def _render(args: argparse.Namespace) -> None:
    from lreid.data.rendered import render  # SciPy and OpenGL, which no other command needs

    out = args.root / args.name
    try:
        count = render(out, args.root / "makehuman", **{option: getattr(args, option) for option in RENDERING})
    except ArgumentError as error:
        raise InputError(f"--{error.argument.replace('_', '-')} {error.fault}") from None
    names = "" if out.suffix == ".zip" else f"; BENCHMARK.TRAIN \"['csv:{args.name}/index.csv']\""
    print(f"{out}: {count} images{names}")
