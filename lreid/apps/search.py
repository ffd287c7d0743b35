"""Build a gallery of your images and search it: who is in an image, and is that person enrolled?

lreid search build people.gallery my/images                           # folders, or a CSV file
lreid search calibrate people.gallery my/labelled --false-accept-rate 0.01
lreid search query people.gallery new.jpg                              # writes matches/matches.html
lreid search compare a.jpg b.jpg                                       # do they show the same person?
lreid search add people.gallery my/images                              # adds only new images
lreid search rename people.gallery alise alice                         # search undo reverts it
lreid search remove people.gallery --identity alice
lreid search info people.gallery
lreid search check people.gallery --new newer.pt --images my/labelled --max-lost 1%
lreid search reindex people.gallery --checkpoint newer.pt              # search rollback undoes it
lreid search reindex people.gallery --checkpoint newer.pt --map new/images    # without the gallery's images
lreid search migrate people.gallery milvus:http://127.0.0.1:19530/people

A gallery is a file or a Milvus collection (milvus:FILE.db or milvus:http://host:port/NAME). lreid reads identity and
camera from file names like 0002_c1s1_000451_03.jpg. With other file names, each subfolder is an identity (anna/07.jpg),
or each subfolder is a camera with one folder per identity (cam1/anna/07.jpg). A CSV file has the columns path and pid,
and optionally camid, split and time. If a CSV file has a column split, build reads only the rows with the
value gallery; calibrate and query read only the rows with the value query.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lreid.apps.arguments import DEVICE, flag, option, require_device, require_model, require_path, subcommand
from lreid.errors import InputError, counted, naming_keys, rounded_up

if TYPE_CHECKING:
    from lreid.data.datasets import Sources
    from lreid.gallery.images import SearchImage

SKIP_BAD = "skip images that cannot be read"
KINDS = ("flat", "hnsw", "ivfpq")  # as in lreid.retrieval.index, which is not imported here because it loads torch
FEW_QUERIES = 3  # maximum number of queries for which a line per query is printed
OVER_LIMIT = 3  # exit status of check if no option is within the limits
ARGUMENTS = """
    adapt_norm camera cross_model device false_accept_rate force identity kind merge old other_cameras pattern restart
    root shards top
"""
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in ARGUMENTS.split()}
OPTIONS["skip_bad"] = "when indexing, --skip-bad"  # the command check has no such option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid search``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_indexing(commands)
    _add_query(commands)
    _add_compare(commands)
    _add_versions(commands)
    _command(commands, _info, "print what a gallery contains")


def _command(
    commands: Any, run: Callable[[argparse.Namespace], int | None], what: str, images: str = "", *, model: str = ""
) -> argparse.ArgumentParser:
    """Add the command of a function, with a gallery, images and a model (``required`` or ``optional``) as arguments."""
    sub = subcommand(commands, run, what)
    sub.add_argument("gallery", metavar="GALLERY", help="gallery file, milvus:FILE.db or milvus:http://host:port/NAME")
    if images:
        sub.add_argument("images", type=Path, nargs="+", metavar=images, help="folders, CSV files or images")
        _add_sources(sub)
    if model:
        own = "model: a checkpoint or zoo:NAME" if model != "optional" else "new path of the gallery's model, if moved"
        if model == "recommended":
            own += " (default: zoo:people for upright images, zoo:vehicles for others)"
        option(sub, "--checkpoint FILE", own, type=Path, required=model == "required")
        option(sub, "--device", DEVICE, "auto")
    return sub


def _add_sources(parser: argparse.ArgumentParser) -> None:
    option(parser, "--pattern P", "pattern of the image paths, such as {pid}/{camid}_{n}.png", "")
    option(parser, "--root DIR", "folder to which image paths in a CSV file may be relative", Path("datasets"))


def _add_indexing(commands: Any) -> None:
    """Add the commands that change a gallery: build, add, remove, calibrate."""
    build = _command(commands, _build, "index images in a new gallery", "DIR|CSV", model="recommended")
    option(build, "--kind", "kind of index (default: flat, which is exact)", "flat", choices=KINDS)
    option(build, "--shards N", "number of parts of the gallery; lreid searches the parts in parallel", 1)
    statistics = "standardise features per camera, with the statistics of the indexed images"
    option(build, "--adapt-norm", statistics, choices=("features",))
    add = _command(commands, _add, "index the images that are not yet in the gallery", "DIR|CSV", model="optional")
    for sub in (build, add):
        who = sub.add_mutually_exclusive_group()
        option(who, "--identity NAME", "name of the person in all images")
        flag(who, "--no-identities", "do not read identities from the paths")

    rename = _command(commands, _rename, "give an identity another name")
    rename.add_argument("identity", metavar="OLD", help="identity in the gallery")
    rename.add_argument("name", metavar="NEW", help="new name")
    flag(rename, "--merge", "accept a name that the gallery already has, because both are one person")
    _command(commands, _undo, "revert the last add, remove or rename of a gallery file")

    remove = _command(commands, _remove, "delete images from a gallery")
    remove.add_argument("images", nargs="*", metavar="IMAGE", help="paths of the images to delete")
    option(remove, "--identity NAME", "delete all images of this identity")
    flag(remove, "--everywhere", "also delete the images from other versions of the gallery, and what undo needs")

    calibrate = _command(commands, _calibrate, "set the threshold for unknown people", "DIR|CSV", model="optional")
    option(calibrate, "--false-accept-rate RATE", "share of impostors whose score may reach the threshold", 0.01)
    for sub in (build, add, calibrate):
        flag(sub, "--skip-bad", SKIP_BAD)


def _add_query(commands: Any) -> None:
    query = _command(commands, _query, "search the gallery for people in images", "IMAGE|DIR|CSV", model="optional")
    option(query, "--top K", "number of matches per image", 10)
    option(query, "--camera NAME", "name of the camera that took all query images")
    flag(query, "--other-cameras", "leave out gallery images from the query's camera")
    option(query, "--group", "search with all images of a folder as one person or track", choices=("folder",))
    other = "search with a model that did not build the gallery; the features of both models must be comparable"
    flag(query, "--cross-model", other)
    option(query, "--out DIR", "folder for the results", Path("matches"))
    flag(query, "--blur", "blur the images on the page")
    for what in ("camera", "identity"):
        for which, word in (("only", "only"), ("not", "no")):
            meaning = f"match {word} images of this {what}; repeat the option to give several"
            option(query, f"--{which}-{what} NAME", meaning, [])
    option(query, "--since SECONDS", "match only images taken at this time or later", type=int)
    option(query, "--until SECONDS", "match only images taken before this time", type=int)


def _add_compare(commands: Any) -> None:
    compare = subcommand(commands, _compare, "report whether images show the same identity")
    compare.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="two or more images, compared in pairs")
    option(compare, "--gallery GALLERY", "use the model and the threshold of this gallery")
    model = "model (default: that of --gallery, or else zoo:people for upright images and zoo:vehicles for others)"
    option(compare, "--checkpoint FILE", model, type=Path)
    option(compare, "--device", DEVICE, "auto")


def _per_cent(text: str) -> float:
    """Parse a limit in per cent, such as ``1%``."""
    match = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]+)?)\s*%\s*", text, re.ASCII)
    if match is None or float(match[1]) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage; give one from 0% to 100%, such as 1%")
    return float(match[1])


def _add_versions(commands: Any) -> None:
    """Add the commands for a new model or a new place of a gallery: check, reindex, rollback, migrate."""
    reindex = _command(commands, _reindex, "bring a gallery to a new model, and keep the old version", model="required")
    flag(reindex, "--restart", "discard an earlier, unfinished reindexing with a different model")
    flag(reindex, "--skip-bad", SKIP_BAD)
    flag(reindex, "--force", "use a map from few images, or one that is worse than keeping the old model")
    option(reindex, "--old MODEL", "new path of the gallery's model for --map, if moved", type=Path)
    measured = "labelled images of people in the gallery, to measure mAP before and after --map"
    option(reindex, "--images DIR|CSV", measured, [], type=Path, nargs="+")
    check = _command(commands, _check, "measure what a new model would change in a gallery", model="optional")
    option(check, "--new MODEL", "new model: a checkpoint or zoo:NAME", type=Path, required=True)
    option(check, "--images DIR|CSV", "labelled images of people, enrolled or not", type=Path, nargs="+", required=True)
    for sub in (reindex, check):
        images = "images, not of the gallery, to map its features to the new model instead of extracting its images"
        option(sub, "--map DIR|CSV", images, [], type=Path, nargs="+")
        _add_sources(sub)
    lost = "enrolled people whom the new model no longer recognises"
    accepted = "unknown people whom the new model takes for enrolled people"
    for name, who in (("lost", lost), ("fpir", accepted)):
        option(check, f"--max-{name} P%", f"maximum share of {who}; above it, the exit status is 3", type=_per_cent)
    option(check, "--out DIR", "folder for the results", Path("check"))
    flag(check, "--blur", "blur the images on the page")
    flag(check, "--skip-bad", SKIP_BAD)
    _command(commands, _rollback, "return to the previous version of the gallery")
    migrate = _command(commands, _migrate, "copy the gallery to another place")
    migrate.add_argument("to", metavar="TO", help="new gallery, which must not exist yet")
    option(migrate, "--kind", "kind of index of the copy (default: unchanged)", choices=KINDS)
    option(migrate, "--shards N", "number of parts of the copy, if it is a file (default: 1)", 1)


@naming_keys(**OPTIONS)
def run(args: argparse.Namespace) -> int | None:
    """Run the chosen command, and return the exit status if it is not 0."""
    require_device(getattr(args, "device", None))
    for name in ("checkpoint", "new", "old"):
        require_model(getattr(args, name, None))
    status: int | None = args.run_command(args)
    return status


def _build(args: argparse.Namespace) -> None:
    from lreid.data.listing import suggested
    from lreid.gallery import commands
    from lreid.gallery.images import who

    images, folder = _images_to_index(args), args.images[0].absolute()
    below = [Path(image.path).relative_to(folder) for image in images if image.path.startswith(f"{folder}/")]
    if not any(image.camera for image in images) and (text := suggested(below)):
        print(f'no camera in the paths; try --pattern "{text}", which fits them')
    if not (checkpoint := args.checkpoint):
        from lreid.gallery.comparison import model_for

        checkpoint = Path(model_for([image.path for image in images]))
        print(f"model: {checkpoint}, by the shape of the images; --checkpoint takes another one")
    gallery = commands.build(
        args.gallery,
        checkpoint,
        images,
        kind=args.kind,
        shards=args.shards,
        adapt_norm=args.adapt_norm is not None,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    print(f"{args.gallery}: {counted(len(gallery), 'image')} of {who(images)}")


def _images_to_index(args: argparse.Namespace) -> "list[SearchImage]":
    from lreid.gallery.images import list_images

    identities = not args.no_identities
    return list_images(args.images, "gallery", _sources(args), identities=identities, identity=args.identity)


def _sources(args: argparse.Namespace) -> "Sources":
    """Return how to find images: the pattern for paths in folders, and the root of paths in CSV files."""
    from lreid.data.datasets import Sources

    return Sources(args.root, pattern=args.pattern)


def _add(args: argparse.Namespace) -> None:
    from lreid.gallery import commands
    from lreid.gallery.images import who

    images = _images_to_index(args)
    added = commands.add(args.gallery, images, checkpoint=args.checkpoint, skip_bad=args.skip_bad, device=args.device)
    shown = f"; they show {who(images)}" if added else ""
    print(f"{args.gallery}: {counted(added, 'image')} added, {len(images) - added} already in it or skipped{shown}")
    if args.identity and added < len(images):
        print("images that are already in a gallery keep their name; remove them first to change it")


def _rename(args: argparse.Namespace) -> None:
    from lreid.gallery import commands
    from lreid.utils.reading import escaped

    renamed = commands.rename(args.gallery, escaped(args.identity), args.name, merge=args.merge)
    print(f"{args.gallery}: {counted(renamed, 'image')} of {args.identity} renamed to {args.name}; undo reverts it")


def _undo(args: argparse.Namespace) -> None:
    from lreid.gallery import commands

    change = commands.undo(args.gallery)
    print(f"{args.gallery}: reverted {change.action} of {counted(len(change.labels[0]), 'image')}")


def _remove(args: argparse.Namespace) -> None:
    from lreid.gallery import commands
    from lreid.utils.reading import escaped

    removed = commands.remove(args.gallery, args.images, escaped(args.identity), everywhere=args.everywhere)
    print(f"{args.gallery}: {counted(removed, 'image')} removed")


def _calibrate(args: argparse.Namespace) -> None:
    from lreid.gallery import commands
    from lreid.gallery.images import list_images

    calibration = commands.calibrate(
        args.gallery,
        list_images(args.images, "query", _sources(args)),
        false_accept_rate=args.false_accept_rate,
        checkpoint=args.checkpoint,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    rate = f"{100 * args.false_accept_rate:g} %"
    print(f"{args.gallery}: threshold {rounded_up(calibration['threshold'])}, which at most {rate} of impostors reach")
    if calibration["true_positive_rate"] is not None:
        share = 100 * calibration["true_positive_rate"]
        print(f"{share:.1f} % of {calibration['known']} images of people in the gallery are recognised")
    low, high = map(rounded_up, calibration["interval"])
    impostors, genuine = counted(calibration["impostors"], "impostor score"), calibration["known"]
    print(f"{impostors}, {counted(genuine, 'genuine score')}; 95 % interval of the threshold {low} to {high}")
    print("threshold  recognised  accepted impostors")
    for row in {row["threshold"]: row for row in calibration["table"]}.values():  # with few scores, many are equal
        recognised = "-" if row["true_positive_rate"] is None else f"{100 * row['true_positive_rate']:.1f} %"
        print(f"{rounded_up(row['threshold']):>9}  {recognised:>10}  {row['false_accepts']:>5} of {impostors}")
    print(f"next: lreid search query {args.gallery} IMAGE")


def _query(args: argparse.Namespace) -> None:
    from lreid.gallery import Filter, commands
    from lreid.gallery.findings import query_name, summary, too_few, verdict, write_findings
    from lreid.utils.files import require_own
    from lreid.utils.reading import escaped

    require_own(args.out / "matches.json", args.out / "matches.html")
    results = commands.query(
        args.gallery,
        args.images,
        top=args.top,
        other_cameras=args.other_cameras,
        only=Filter(
            args.only_camera or None,
            args.not_camera,
            escaped(args.only_identity) or None,
            escaped(args.not_identity),
            args.since,
            args.until,
        ),
        camera=args.camera,
        sources=_sources(args),
        checkpoint=args.checkpoint,
        cross_model=args.cross_model,
        group=args.group,
        device=args.device,
    )
    write_findings(results, args.out, blur=args.blur)
    if len(results["queries"]) <= FEW_QUERIES:
        for finding in results["queries"]:
            print(f"{query_name(finding)}: {verdict(finding, results['threshold'], results['false_accept_rate'])}")
    print("\n".join(summary(results)))
    if caveat := too_few(results["calibrated_on"], results["false_accept_rate"]):
        print(f"the threshold: {caveat}")
    print(f"matches are in {args.out / 'matches.html'} and matches.json")


def _compare(args: argparse.Namespace) -> None:
    for path in (*args.images, args.gallery):
        require_path(path)
    from lreid.gallery.comparison import compare, said

    comparison = compare(*args.images, model=args.checkpoint, gallery=args.gallery, device=args.device)
    for pair in comparison["pairs"]:
        print(f"{pair['images'][0]}, {pair['images'][1]}: {said(pair, comparison)}")
    for note in comparison["notes"]:
        print(note)


def _info(args: argparse.Namespace) -> None:
    from lreid.gallery import commands

    for name, value in commands.info(args.gallery).items():
        print(f"{name:22} {value}")


def _check(args: argparse.Namespace) -> int | None:
    from lreid.gallery import release_check, release_page
    from lreid.gallery.images import list_images
    from lreid.utils.files import require_own

    require_own(args.out / release_page.PAGE, args.out / release_page.FIGURES)
    comparison = release_check.check(
        args.gallery,
        args.new,
        list_images(args.images, "query", _sources(args)),
        out=args.out,
        max_lost=args.max_lost,
        max_fpir=args.max_fpir,
        map_images=_map_images(args),
        checkpoint=args.checkpoint,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    print(release_page.write_check(comparison, args.out, blur=args.blur))
    print(f"page: {args.out / release_page.PAGE}, figures: {release_page.FIGURES}")
    return None if comparison.results["passed"] else OVER_LIMIT


def _map_images(args: argparse.Namespace) -> "list[SearchImage]":
    from lreid.gallery.images import list_images

    return list_images(args.map, "gallery", _sources(args), identities=False)


def _reindex(args: argparse.Namespace) -> None:
    from lreid.gallery import model_map, versions
    from lreid.gallery.images import list_images

    after = "calibrate the gallery again, or return to the old model with rollback"
    options = {"skip_bad": args.skip_bad, "restart": args.restart, "device": args.device}
    if not args.map:
        if args.images or args.old or args.force:
            raise InputError("--map: is missing; --images, --old and --force apply only with it")
        report = versions.reindex(args.gallery, args.checkpoint, **options)
        images, extracted = counted(report["images"], "image"), report["extracted"]
        print(f"{args.gallery}: {images} with features of the new model, {extracted} extracted now; {after}")
        return
    options |= {"labelled": list_images(args.images, "query", _sources(args)), "old": args.old, "force": args.force}
    mapping = model_map.reindex_by_map(args.gallery, args.checkpoint, _map_images(args), **options)
    maps = f"{counted(mapping['images'], 'image')} ({counted(mapping['maps'], 'map')} deep)"
    quality = f"mean cosine {mapping['cosine']:.3f} on held-out images (a constant: {mapping['baseline']:.3f})"
    threshold = "no threshold" if mapping["threshold"] is None else f"threshold {rounded_up(mapping['threshold'])}"
    print(f"{args.gallery}: features mapped with {maps}, {quality}, {threshold}; {after}")
    if args.images:
        from lreid.gallery.release_page import before_and_after

        print(before_and_after(mapping["before"], mapping["after"]))


def _rollback(args: argparse.Namespace) -> None:
    from lreid.gallery import versions

    print(f"{args.gallery}: model {versions.roll_back(args.gallery)} is used again")


def _migrate(args: argparse.Namespace) -> None:
    from lreid.gallery import versions

    images, same = versions.migrate(args.gallery, args.to, kind=args.kind, shards=args.shards)
    print(f"{args.to}: {counted(images, 'image')}, {100 * same:.1f} % of sampled matches as in {args.gallery}")
