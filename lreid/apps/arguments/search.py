"""Search a gallery of your own images: who is on this image, and is it anybody enrolled?

lreid search build people.gallery my/images --checkpoint task-10.pt    # folders, or a CSV file
lreid search calibrate people.gallery my/labelled --false-accept-rate 0.01
lreid search query people.gallery new.jpg                              # matches/matches.html, .json
lreid search compare a.jpg b.jpg                                       # the same person?
lreid search add people.gallery my/images                              # those that are new
lreid search remove people.gallery --identity alice
lreid search info people.gallery
lreid search reindex people.gallery --checkpoint newer.pt              # rollback people.gallery undoes it
lreid search migrate people.gallery milvus:http://127.0.0.1:19530/people

A gallery is a file, or in Milvus: milvus:FILE.db or milvus:http://host:port/NAME; all commands are the same there.
In a folder, names like 0002_c1s1_000451_03.jpg tell identity and camera; otherwise the first folder below it is the
identity, or the second where the first are cameras (cam1/anna/07.jpg). A CSV file has the columns path,pid and perhaps
camid,split,time; with splits, the gallery images are indexed and the queries calibrate.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

DEVICE = "auto, cpu, cuda, cuda:1 … (default: auto)"
ENGINES = ("torch", "onnx")  # those of lreid.loading, which loads torch
ENGINE = "onnx: extract features with onnxruntime on the processor (default: torch)"
SKIP_BAD = "leave out images that cannot be read"
KINDS = ("flat", "hnsw", "ivfpq")  # those of lreid.retrieval.index, which loads torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid search``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_indexing(commands)
    _add_query(commands)
    _add_compare(commands)
    _add_versions(commands)
    _command(commands, "info", "say what is in a gallery")


def _command(commands: Any, name: str, what: str, images: str = "", *, model: str = "") -> argparse.ArgumentParser:
    """A command for a gallery, with images and with a model that is ``required`` or ``optional``."""
    sub = commands.add_parser(name, help=what)
    sub.set_defaults(action=name)
    sub.add_argument("gallery", metavar="GALLERY", help="a file, milvus:FILE.db or milvus:http://…")
    if images:
        sub.add_argument("images", type=Path, nargs="+", metavar=images, help="folders, CSV files or images")
        sub.add_argument("--pattern", default="", metavar="P", help="of their paths, such as {pid}/{camid}_{n}.png")
        sub.add_argument(
            "--root",
            type=Path,
            default=Path("datasets"),
            metavar="DIR",
            help="folder in which CSV files may name images, too (default: datasets)",
        )
    if model:
        own = "the model" if model == "required" else "the gallery's model, if it is not where it was"
        sub.add_argument("--checkpoint", type=Path, required=model == "required", metavar="FILE", help=own)
        _add_device(sub)
    return sub


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--engine", choices=ENGINES, default="torch", help=ENGINE)


def _add_indexing(commands: Any) -> None:
    """What is in a gallery: build, add, remove, calibrate."""
    build = _command(commands, "build", "index images", "DIR|CSV", model="required")
    build.add_argument("--kind", choices=KINDS, default="flat", help="of index (default: flat, which is exact)")
    build.add_argument(
        "--shards", type=int, default=1, metavar="N", help="parts that are searched side by side (default: 1)"
    )
    build.add_argument(
        "--adapt-norm", choices=("features",), help="standardise features by camera, with statistics of these images"
    )
    add = _command(commands, "add", "index images that are not in the gallery yet", "DIR|CSV", model="optional")
    for sub in (build, add):
        who = sub.add_mutually_exclusive_group()
        who.add_argument("--identity", metavar="NAME", help="who is on all of these images")
        who.add_argument("--no-identities", action="store_true", help="folders are not named after identities")

    remove = _command(commands, "remove", "delete images")
    remove.add_argument("images", nargs="*", metavar="IMAGE", help="paths of images in the gallery")
    remove.add_argument("--identity", metavar="NAME", help="all images of one identity")
    remove.add_argument("--everywhere", action="store_true", help="also from the versions before and after")

    calibrate = _command(
        commands, "calibrate", "set the threshold between known and unknown", "DIR|CSV", model="optional"
    )
    calibrate.add_argument(
        "--false-accept-rate",
        type=float,
        default=0.01,
        metavar="RATE",
        help="share of impostors that may be accepted (default: 0.01)",
    )
    for sub in (build, add, calibrate):
        sub.add_argument("--skip-bad", action="store_true", help=SKIP_BAD)


def _add_query(commands: Any) -> None:
    query = _command(commands, "query", "find the identities of images", "IMAGE|DIR|CSV", model="optional")
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
        for which, images in (("only", "images of this"), ("not", "no images of this")):
            meaning = f"find {images} {what} (repeat it for more)"
            query.add_argument(f"--{which}-{what}", action="append", default=[], metavar="NAME", help=meaning)
    query.add_argument("--since", type=int, metavar="SECONDS", help="find images of this time or later")
    query.add_argument("--until", type=int, metavar="SECONDS", help="find images before this time")


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="say whether images are of the same identity")
    compare.set_defaults(action="compare")
    compare.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="two or more, each pair is compared")
    compare.add_argument("--gallery", metavar="GALLERY", help="take its model and its threshold")
    compare.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="the model (default: the zoo's for people, or the gallery's)"
    )
    _add_device(compare)


def _add_versions(commands: Any) -> None:
    """Other models and places: reindex, rollback, migrate."""
    reindex = _command(commands, "reindex", "move to another model, beside the old one", model="required")
    reindex.add_argument("--restart", action="store_true", help="drop what was begun for another model")
    reindex.add_argument("--skip-bad", action="store_true", help=SKIP_BAD)
    _command(commands, "rollback", "go back to the version before")
    migrate = _command(commands, "migrate", "copy to another place")
    migrate.add_argument("to", metavar="TO", help="where there is no gallery yet")
    migrate.add_argument("--kind", choices=KINDS, help="of the copy (default: as it was)")
    migrate.add_argument("--shards", type=int, default=1, metavar="N", help="parts of the copy, if it is a file")
