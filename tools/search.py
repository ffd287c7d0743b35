#!/usr/bin/env python
"""Searches a gallery of your own images: who is on this picture, and is it anybody known?

python tools/search.py build people.gallery my/images --checkpoint task-10.pt    # folders, or a CSV file
python tools/search.py calibrate people.gallery my/labelled --false-accept-rate 0.01
python tools/search.py query people.gallery somebody.jpg                         # matches/matches.html, .json
python tools/search.py add people.gallery my/images                              # those that are new
python tools/search.py remove people.gallery --identity alice
python tools/search.py info people.gallery
python tools/search.py reindex people.gallery --checkpoint newer.pt              # rollback people.gallery undoes it
python tools/search.py migrate people.gallery milvus:http://127.0.0.1:19530/people

A gallery is a file, or in Milvus: milvus:FILE.db or milvus:http://host:port/NAME; all commands are the same there.
In a folder, names like 0002_c1s1_000451_03.jpg tell identity and camera; otherwise the first folder below it is the
identity. A CSV file has the columns path,pid,camid,split; of it the gallery images are indexed, the queries calibrate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps import search
from lreid.apps.cli import run_tool
from lreid.apps.search import Narrowing, verdict
from lreid.gallery.faiss.index import KINDS


def build(args: argparse.Namespace) -> None:
    images = search.list_images(args.images, "gallery", identities=not args.no_identities)
    named = search.build(
        args.gallery,
        args.checkpoint,
        images,
        kind=args.kind,
        shards=args.shards,
        adapt_norm=args.adapt_norm,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    print(f"{args.gallery}: {len(named.gallery)} images, {len(named.identities)} identities")


def add(args: argparse.Namespace) -> None:
    images = search.list_images(args.images, "gallery", identities=not args.no_identities)
    added = search.add(args.gallery, images, checkpoint=args.checkpoint, skip_bad=args.skip_bad, device=args.device)
    print(f"{args.gallery}: {added} images added, {len(images) - added} were there already or skipped")


def remove(args: argparse.Namespace) -> None:
    removed = search.remove(args.gallery, args.images, args.identity, everywhere=args.everywhere)
    print(f"{args.gallery}: {removed} images removed")


def calibrate(args: argparse.Namespace) -> None:
    images = search.list_images(args.images, "query")
    told = search.calibrate(
        args.gallery,
        images,
        false_accept_rate=args.false_accept_rate,
        checkpoint=args.checkpoint,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    print(
        f"{args.gallery}: threshold {told['threshold']:.4f}; at most {100 * args.false_accept_rate:g} % of strangers "
        "reach it"
    )
    if told["true_positive_rate"] is not None:
        share = 100 * told["true_positive_rate"]
        print(f"{share:.1f} % of {told['known']} images of people in the gallery are recognised with it")


def query(args: argparse.Namespace) -> None:
    only = Narrowing(args.only_camera, args.not_camera, args.only_identity, args.not_identity, args.since, args.until)
    results = search.query(
        args.gallery,
        args.images,
        args.out,
        top=args.top,
        camera=args.camera,
        other_cameras=args.other_cameras,
        only=only,
        checkpoint=args.checkpoint,
        cross_model=args.cross_model,
        blur=args.blur,
        device=args.device,
    )
    for answer in results["queries"]:
        print(f"{answer['image']}: {verdict(answer, results['threshold'], results['false_accept_rate'])}")
    print(f"matches in {args.out / 'matches.html'} and matches.json")


def info(args: argparse.Namespace) -> None:
    for name, value in search.describe(args.gallery).items():
        print(f"{name:22} {value}")


def reindex(args: argparse.Namespace) -> None:
    told = search.reindex(
        args.gallery, args.checkpoint, skip_bad=args.skip_bad, restart=args.restart, device=args.device
    )
    print(
        f"{args.gallery}: {told['images']} images of the new model, {told['extracted']} extracted now; calibrate it "
        "anew, or go back with rollback"
    )


def rollback(args: argparse.Namespace) -> None:
    print(f"{args.gallery}: model {search.roll_back(args.gallery)} is in use again")


def migrate(args: argparse.Namespace) -> None:
    told = search.migrate(args.gallery, args.to, kind=args.kind, shards=args.shards)
    print(f"{args.to}: {told['images']} images, {100 * told['same']:.1f} % of sampled matches as in {args.gallery}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(
        action: Callable[[argparse.Namespace], None], what: str, images: str, *, model: str = ""
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(action.__name__, help=what)
        sub.set_defaults(action=action)
        sub.add_argument("gallery", metavar="GALLERY", help="a file, milvus:FILE.db or milvus:http://…")
        if images:
            sub.add_argument("images", type=Path, nargs="+", metavar=images)
        if model:
            sub.add_argument(
                "--checkpoint",
                type=Path,
                required=model == "required",
                metavar="FILE",
                help="the model" if model == "required" else "the gallery's model, if it is not where it was",
            )
            sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
        return sub

    sub = command(build, "index images", "DIR|CSV", model="required")
    sub.add_argument("--kind", choices=KINDS, default="flat", help="flat is exact")
    sub.add_argument("--shards", type=int, default=1, metavar="N", help="parts that are searched side by side")
    sub.add_argument(
        "--adapt-norm",
        choices=("gallery", "camera"),
        help="normalise with statistics of these images, as a whole or by camera",
    )
    indexing = [sub, command(add, "index images that are not in the gallery yet", "DIR|CSV", model="optional")]
    for sub in indexing:
        sub.add_argument("--no-identities", action="store_true", help="folders are not named after identities")

    sub = command(remove, "delete images", "")
    sub.add_argument("images", nargs="*", metavar="IMAGE")
    sub.add_argument("--identity", metavar="NAME", help="all images of one identity")
    sub.add_argument("--everywhere", action="store_true", help="also from the versions before and after")

    sub = command(calibrate, "set the threshold between known and unknown", "DIR|CSV", model="optional")
    sub.add_argument(
        "--false-accept-rate",
        type=float,
        default=0.01,
        metavar="RATE",
        help="share of strangers that may be taken for somebody known (default: 0.01)",
    )
    for each in [*indexing, sub]:
        each.add_argument("--skip-bad", action="store_true", help="leave out images that cannot be read")

    sub = command(query, "look images up", "IMAGE|DIR", model="optional")
    sub.add_argument("--top", type=int, default=10, metavar="K", help="matches an image (default: 10)")
    sub.add_argument("--camera", metavar="NAME", help="the camera that took the pictures")
    sub.add_argument("--other-cameras", action="store_true", help="leave out images of that camera")
    sub.add_argument(
        "--cross-model", action="store_true", help="search with another model that was trained to be comparable"
    )
    sub.add_argument(
        "--out", type=Path, default=Path("matches"), metavar="DIR", help="where to write (default: matches)"
    )
    sub.add_argument("--blur", action="store_true", help="smear the pictures of the page")

    for what in ("camera", "identity"):
        for which in ("only", "not"):
            sub.add_argument(
                f"--{which}-{what}",
                action="append",
                default=[],
                metavar="NAME",
                help=f"find {'images of this' if which == 'only' else 'no images of this'} {what} (repeat it for more)",
            )
    sub.add_argument("--since", type=int, metavar="SECONDS", help="find images of this time or later")
    sub.add_argument("--until", type=int, metavar="SECONDS", help="find images before this time")

    sub = command(reindex, "move to another model, beside the old one", "", model="required")
    sub.add_argument("--skip-bad", action="store_true", help="leave out images that cannot be read")
    sub.add_argument("--restart", action="store_true", help="drop what was begun for another model")
    command(rollback, "go back to the version before", "")

    sub = command(migrate, "copy to another place", "")
    sub.add_argument("to", metavar="TO", help="where there is no gallery yet")
    sub.add_argument("--kind", choices=KINDS, help="of the copy (default: as it was)")
    sub.add_argument("--shards", type=int, default=1, metavar="N", help="parts of the copy, if it is a file")

    command(info, "say what is in a gallery", "")
    return top


if __name__ == "__main__":
    sys.exit(run_tool(parser(), lambda args: args.action(args)))
