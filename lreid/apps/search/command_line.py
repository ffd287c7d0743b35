"""Parse the command line of ``lreid search``, and print what its commands found."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from lreid.apps.search import commands, versions
from lreid.apps.search.findings import verdict
from lreid.apps.search.named_gallery import Narrowing
from lreid.apps.search.own_images import list_images
from lreid.retrieval.index import KINDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid search``."""
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        action: Callable[[argparse.Namespace], None], what: str, images: str = "", *, model: str = ""
    ) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(action.__name__.removeprefix("_"), help=what)
        sub.set_defaults(action=action)
        sub.add_argument("gallery", metavar="GALLERY", help="a file, milvus:FILE.db or milvus:http://…")
        if images:
            sub.add_argument("images", type=Path, nargs="+", metavar=images, help="folders, CSV files or images")
        if model:
            sub.add_argument(
                "--checkpoint",
                type=Path,
                required=model == "required",
                metavar="FILE",
                help="the model" if model == "required" else "the gallery's model, if it is not where it was",
            )
            sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 … (default: auto)")
        return sub

    build = command(_build, "index images", "DIR|CSV", model="required")
    build.add_argument("--kind", choices=KINDS, default="flat", help="of index (default: flat, which is exact)")
    build.add_argument(
        "--shards", type=int, default=1, metavar="N", help="parts that are searched side by side (default: 1)"
    )
    build.add_argument(
        "--adapt-norm",
        choices=("gallery", "camera"),
        help="normalise with statistics of these images, as a whole or by camera",
    )
    add = command(_add, "index images that are not in the gallery yet", "DIR|CSV", model="optional")
    for sub in (build, add):
        sub.add_argument("--no-identities", action="store_true", help="folders are not named after identities")

    remove = command(_remove, "delete images")
    remove.add_argument("images", nargs="*", metavar="IMAGE", help="paths of images in the gallery")
    remove.add_argument("--identity", metavar="NAME", help="all images of one identity")
    remove.add_argument("--everywhere", action="store_true", help="also from the versions before and after")

    calibrate = command(_calibrate, "set the threshold between known and unknown", "DIR|CSV", model="optional")
    calibrate.add_argument(
        "--false-accept-rate",
        type=float,
        default=0.01,
        metavar="RATE",
        help="share of impostors that may be accepted (default: 0.01)",
    )

    query = command(_query, "find the identities of images", "IMAGE|DIR", model="optional")
    query.add_argument("--top", type=int, default=10, metavar="K", help="matches an image (default: 10)")
    query.add_argument("--camera", metavar="NAME", help="the camera that took the images")
    query.add_argument("--other-cameras", action="store_true", help="leave out images of that camera")
    query.add_argument(
        "--cross-model", action="store_true", help="search with another model that was trained to be comparable"
    )
    query.add_argument(
        "--out", type=Path, default=Path("matches"), metavar="DIR", help="where to write (default: matches)"
    )
    query.add_argument("--blur", action="store_true", help="blur the images of the page")
    for what in ("camera", "identity"):
        for which, found in (("only", "images of this"), ("not", "no images of this")):
            query.add_argument(
                f"--{which}-{what}",
                action="append",
                default=[],
                metavar="NAME",
                help=f"find {found} {what} (repeat it for more)",
            )
    query.add_argument("--since", type=int, metavar="SECONDS", help="find images of this time or later")
    query.add_argument("--until", type=int, metavar="SECONDS", help="find images before this time")

    reindex = command(_reindex, "move to another model, beside the old one", model="required")
    reindex.add_argument("--restart", action="store_true", help="drop what was begun for another model")
    for sub in (build, add, calibrate, reindex):
        sub.add_argument("--skip-bad", action="store_true", help="leave out images that cannot be read")
    command(_rollback, "go back to the version before")

    migrate = command(_migrate, "copy to another place")
    migrate.add_argument("to", metavar="TO", help="where there is no gallery yet")
    migrate.add_argument("--kind", choices=KINDS, help="of the copy (default: as it was)")
    migrate.add_argument("--shards", type=int, default=1, metavar="N", help="parts of the copy, if it is a file")

    command(_info, "say what is in a gallery")


def run(args: argparse.Namespace) -> None:
    """Does what the chosen command says."""
    args.action(args)


def _build(args: argparse.Namespace) -> None:
    images = list_images(args.images, "gallery", identities=not args.no_identities)
    named = commands.build(
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


def _add(args: argparse.Namespace) -> None:
    images = list_images(args.images, "gallery", identities=not args.no_identities)
    added = commands.add(args.gallery, images, checkpoint=args.checkpoint, skip_bad=args.skip_bad, device=args.device)
    print(f"{args.gallery}: {added} images added, {len(images) - added} were there already or skipped")


def _remove(args: argparse.Namespace) -> None:
    removed = commands.remove(args.gallery, args.images, args.identity, everywhere=args.everywhere)
    print(f"{args.gallery}: {removed} images removed")


def _calibrate(args: argparse.Namespace) -> None:
    told = commands.calibrate(
        args.gallery,
        list_images(args.images, "query"),
        false_accept_rate=args.false_accept_rate,
        checkpoint=args.checkpoint,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    rate = f"{100 * args.false_accept_rate:g} %"
    print(f"{args.gallery}: threshold {told['threshold']:.4f}; at most {rate} of impostors reach it")
    if told["true_positive_rate"] is not None:
        share = 100 * told["true_positive_rate"]
        print(f"{share:.1f} % of {told['known']} images of people in the gallery are recognised with it")


def _query(args: argparse.Namespace) -> None:
    results = commands.query(
        args.gallery,
        args.images,
        args.out,
        top=args.top,
        camera=args.camera,
        other_cameras=args.other_cameras,
        only=Narrowing(
            args.only_camera, args.not_camera, args.only_identity, args.not_identity, args.since, args.until
        ),
        checkpoint=args.checkpoint,
        cross_model=args.cross_model,
        blur=args.blur,
        device=args.device,
    )
    for finding in results["queries"]:
        print(f"{finding['image']}: {verdict(finding, results['threshold'], results['false_accept_rate'])}")
    print(f"matches in {args.out / 'matches.html'} and matches.json")


def _info(args: argparse.Namespace) -> None:
    for name, value in commands.describe(args.gallery).items():
        print(f"{name:22} {value}")


def _reindex(args: argparse.Namespace) -> None:
    told = versions.reindex(
        args.gallery, args.checkpoint, skip_bad=args.skip_bad, restart=args.restart, device=args.device
    )
    print(
        f"{args.gallery}: {told['images']} images of the new model, {told['extracted']} extracted now; calibrate it "
        "anew, or go back with rollback"
    )


def _rollback(args: argparse.Namespace) -> None:
    print(f"{args.gallery}: model {versions.roll_back(args.gallery)} is in use again")


def _migrate(args: argparse.Namespace) -> None:
    told = versions.migrate(args.gallery, args.to, kind=args.kind, shards=args.shards)
    print(f"{args.to}: {told['images']} images, {100 * told['same']:.1f} % of sampled matches as in {args.gallery}")
