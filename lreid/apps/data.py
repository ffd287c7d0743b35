"""Show which data sets are there, compare them with published counts, prepare their archives, and render people."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lreid.apps.arguments.data import RENDERING
from lreid.data.contact_sheet import contact_sheet
from lreid.data.datasets import specs
from lreid.data.inventory import look, table
from lreid.data.own import source_of
from lreid.data.prepare import prepare
from lreid.data.proposal import propose
from lreid.data.tracks import Choice, from_tracks
from lreid.errors import ArgumentError, InputError
from lreid.files import write_text


def run(args: argparse.Namespace) -> None:
    """Prepares what is to be prepared and prints the table of what is there."""
    if args.action == "render":
        _render(args)
        return
    if args.action == "from-tracks":
        _cut(args)
        return
    if args.action == "check":
        args.names = [name if name in specs() else _source(name) for name in args.names]
    if args.action != "list" and not args.names:
        raise InputError(f"{args.action}: name a data set; list shows all")
    if args.identities < 1:
        raise InputError(f"--identities is {args.identities}; must be 1 or more")
    if args.action == "prepare":
        if len(args.names) > 1 and args.archive:
            raise InputError("prepare: name one data set for --archive")
        for name in args.names:
            prepare(name, args.root, args.archive)
    names = args.names or list(specs())
    findings = [finding for name in names for finding in look(name, args.root, files=args.action != "list")]
    print(table(findings))
    for finding in findings if args.action == "check" else []:
        trained = {record.pid for record in finding.data_set.train} if finding.data_set is not None else set()
        if finding.data_set is not None and len(trained) > 1 and finding.name not in specs():
            keys = propose([finding.data_set]).keys()
            print(f"{finding.name}, proposed: {' '.join(f'{key} {value}' for key, value in keys.items())}")
    if args.sheet is not None:
        data_sets = [finding.data_set for finding in findings if finding.data_set is not None]
        write_text(args.sheet, contact_sheet(data_sets, identities=args.identities))
        print(f"contact sheet: {args.sheet}")
    wrong = [finding.name for finding in findings if finding.status not in ("complete", "there")]
    if wrong and args.action != "list":
        raise InputError(f"not complete: {', '.join(wrong)}")


def _cut(args: argparse.Namespace) -> None:
    if not args.names or args.out is None:
        raise InputError("from-tracks: name a video, or a folder of MOT Challenge, and a folder to make by --out")
    choice = Choice(args.every, args.most, args.min_height, args.min_sharpness)
    count = from_tracks(list(map(Path, args.names)), args.tracks, args.out, choice, same=args.same_identities)
    print(f"{args.out}: {count} images; train on them by: lreid train {args.out}")


def _source(name: str) -> str:
    """A name as in ``BENCHMARK.TRAIN`` of what may be a folder or a file."""
    return source_of(Path(name)) if os.path.exists(name) else name


def _render(args: argparse.Namespace) -> None:
    if len(args.names) != 1:
        raise InputError("render: name one folder to make")
    from lreid.data.rendered import render  # SciPy and OpenGL, which no other command needs

    out = args.root / args.names[0]
    try:
        count = render(out, args.root / "makehuman", **{option: getattr(args, option) for option in RENDERING})
    except ArgumentError as error:
        raise InputError(f"--{error.argument.replace('_', '-')} {error.fault}") from None
    names = "" if out.suffix == ".zip" else f"; BENCHMARK.TRAIN \"['csv:{args.names[0]}/index.csv']\""
    print(f"{out}: {count} images{names}")
