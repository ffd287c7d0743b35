"""Build a gallery of your images and search it: who is in an image, and is that person enrolled?

lreid search build people.gallery my/images --checkpoint task-10.pt    # folders, or a CSV file
lreid search calibrate people.gallery my/labelled --false-accept-rate 0.01
lreid search query people.gallery new.jpg                              # writes matches/matches.html
lreid search compare a.jpg b.jpg                                       # do they show the same person?
lreid search add people.gallery my/images                              # adds only new images
lreid search remove people.gallery --identity alice
lreid search info people.gallery
lreid search check people.gallery --new newer.pt --images my/labelled --max-lost 1%
lreid search reindex people.gallery --checkpoint newer.pt              # search rollback undoes it
lreid search migrate people.gallery milvus:http://127.0.0.1:19530/people

A gallery is a file or a Milvus collection (milvus:FILE.db or milvus:http://host:port/NAME). lreid reads identity and
camera from file names like 0002_c1s1_000451_03.jpg. With other file names, each subfolder is an identity (anna/07.jpg),
or each subfolder is a camera with one folder per identity (cam1/anna/07.jpg). A CSV file has the columns path and pid,
and optionally camid, split and time. If a CSV file has a column split, build reads only the rows with the
value gallery; calibrate and query read only the rows with the value query.
"""

import argparse
from pathlib import Path
from typing import Any

from lreid.apps.cli import option

DEVICE = "device of the computation: auto, cpu, cuda, cuda:1 …"
SKIP_BAD = "skip images that cannot be read"
KINDS = ("flat", "hnsw", "ivfpq")  # as in lreid.retrieval.index, which is not imported here because it loads torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid search``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_indexing(commands)
    _add_query(commands)
    _add_compare(commands)
    _add_versions(commands)
    _command(commands, "info", "print what a gallery contains")


def _command(commands: Any, name: str, what: str, images: str = "", *, model: str = "") -> argparse.ArgumentParser:
    """Add a command with a gallery, images and a model (``required`` or ``optional``) as arguments."""
    sub = commands.add_parser(name, help=what)
    sub.set_defaults(action=name)
    sub.add_argument("gallery", metavar="GALLERY", help="gallery file, milvus:FILE.db or milvus:http://host:port/NAME")
    if images:
        sub.add_argument("images", type=Path, nargs="+", metavar=images, help="folders, CSV files or images")
        _add_sources(sub)
    if model:
        own = "model: a checkpoint or zoo:NAME" if model == "required" else "new path of the gallery's model, if moved"
        option(sub, "--checkpoint FILE", own, type=Path, required=model == "required")
        option(sub, "--device", DEVICE, "auto")
    return sub


def _add_sources(parser: argparse.ArgumentParser) -> None:
    option(parser, "--pattern P", "pattern of the image paths, such as {pid}/{camid}_{n}.png", "")
    option(parser, "--root DIR", "folder to which image paths in a CSV file may be relative", Path("datasets"))


def _add_indexing(commands: Any) -> None:
    """Add the commands that change a gallery: build, add, remove, calibrate."""
    build = _command(commands, "build", "index images in a new gallery", "DIR|CSV", model="required")
    option(build, "--kind", "kind of index (default: flat, which is exact)", "flat", choices=KINDS)
    option(build, "--shards N", "number of parts of the gallery; lreid searches the parts in parallel", 1)
    statistics = "standardise features per camera, with the statistics of the indexed images"
    option(build, "--adapt-norm", statistics, choices=("features",))
    add = _command(commands, "add", "index the images that are not yet in the gallery", "DIR|CSV", model="optional")
    for sub in (build, add):
        who = sub.add_mutually_exclusive_group()
        option(who, "--identity NAME", "name of the person in all images")
        who.add_argument("--no-identities", action="store_true", help="do not read identities from the paths")

    remove = _command(commands, "remove", "delete images from a gallery")
    remove.add_argument("images", nargs="*", metavar="IMAGE", help="paths of the images to delete")
    option(remove, "--identity NAME", "delete all images of this identity")
    remove.add_argument(
        "--everywhere", action="store_true", help="also delete the images from other versions of the gallery"
    )

    calibrate = _command(
        commands, "calibrate", "set the threshold between enrolled and unknown people", "DIR|CSV", model="optional"
    )
    option(calibrate, "--false-accept-rate RATE", "share of impostors whose score may reach the threshold", 0.01)
    for sub in (build, add, calibrate):
        sub.add_argument("--skip-bad", action="store_true", help=SKIP_BAD)


def _add_query(commands: Any) -> None:
    query = _command(commands, "query", "search the gallery for people in images", "IMAGE|DIR|CSV", model="optional")
    option(query, "--top K", "number of matches per image", 10)
    option(query, "--camera NAME", "name of the camera that took all query images")
    query.add_argument("--other-cameras", action="store_true", help="leave out gallery images from the query's camera")
    query.add_argument(
        "--cross-model",
        action="store_true",
        help="search with a model that did not build the gallery; the features of both models must be comparable",
    )
    option(query, "--out DIR", "folder for the results", Path("matches"))
    query.add_argument("--blur", action="store_true", help="blur the images on the page")
    for what in ("camera", "identity"):
        for which, word in (("only", "only"), ("not", "no")):
            meaning = f"match {word} images of this {what}; repeat the option to give several"
            option(query, f"--{which}-{what} NAME", meaning, [])
    option(query, "--since SECONDS", "match only images taken at this time or later", type=int)
    option(query, "--until SECONDS", "match only images taken before this time", type=int)


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="report whether images show the same identity")
    compare.set_defaults(action="compare")
    compare.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="two or more images, compared in pairs")
    option(compare, "--gallery GALLERY", "use the model and the threshold of this gallery")
    model = "model (default: that of --gallery, or else zoo:people for upright images and zoo:vehicles for others)"
    option(compare, "--checkpoint FILE", model, type=Path)
    option(compare, "--device", DEVICE, "auto")


def _add_versions(commands: Any) -> None:
    """Add the commands for a new model or a new place of a gallery: check, reindex, rollback, migrate."""
    reindex = _command(
        commands, "reindex", "extract all features with a new model, and replace the gallery", model="required"
    )
    restart = "discard an earlier, unfinished reindexing with a different model"
    reindex.add_argument("--restart", action="store_true", help=restart)
    reindex.add_argument("--skip-bad", action="store_true", help=SKIP_BAD)
    check = _command(commands, "check", "measure what a new model would change in a gallery", model="optional")
    option(check, "--new MODEL", "new model: a checkpoint or zoo:NAME", type=Path, required=True)
    labelled = "labelled images of people, enrolled or not"
    option(check, "--images DIR|CSV", labelled, type=Path, nargs="+", required=True)
    _add_sources(check)
    lost = "enrolled people whom the new model no longer recognises"
    accepted = "unknown people whom the new model takes for enrolled people"
    for name, who in (("lost", lost), ("fpir", accepted)):
        option(check, f"--max-{name} P%", f"maximum share of {who}; above this share, the exit status is 3")
    option(check, "--out DIR", "folder for the results", Path("check"))
    check.add_argument("--blur", action="store_true", help="blur the images on the page")
    check.add_argument("--skip-bad", action="store_true", help=SKIP_BAD)
    _command(commands, "rollback", "return to the previous version of the gallery")
    migrate = _command(commands, "migrate", "copy the gallery to another place")
    migrate.add_argument("to", metavar="TO", help="new gallery, which must not exist yet")
    option(migrate, "--kind", "kind of index of the copy (default: unchanged)", choices=KINDS)
    option(migrate, "--shards N", "number of parts of the copy, if it is a file (default: 1)", 1)
