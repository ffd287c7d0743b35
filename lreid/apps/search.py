"""Run the commands of ``lreid search``, and print their results."""

import argparse
import re
from collections.abc import Callable

from lreid.data.schemes import Sources
from lreid.errors import InputError, counted, naming_keys
from lreid.gallery import Filter, commands
from lreid.gallery.findings import summary, too_few, verdict, write_findings
from lreid.gallery.image_list import list_images, who
from lreid.utils.files import require_writable
from lreid.utils.reading import escaped

FEW = 3  # maximum number of queries for which a line per query is printed
OVER_LIMIT = 3  # exit status of check if no option is within the limits
ARGUMENTS = """
    adapt_norm camera cross_model device false_accept_rate identity kind other_cameras pattern restart root
    shards top
"""
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in ARGUMENTS.split()}
OPTIONS["skip_bad"] = "when indexing, --skip-bad"  # the command check has no such option


@naming_keys(**OPTIONS)
def run(args: argparse.Namespace) -> int | None:
    """Run the chosen command, and return the exit status if it is not 0."""
    actions: dict[str, Callable[[argparse.Namespace], int | None]] = {
        "build": _build,
        "add": _add,
        "remove": _remove,
        "calibrate": _calibrate,
        "query": _query,
        "compare": _compare,
        "check": _check,
        "reindex": _reindex,
        "rollback": _rollback,
        "migrate": _migrate,
        "info": _info,
    }
    return actions[args.action](args)


def _build(args: argparse.Namespace) -> None:
    images = list_images(
        args.images, "gallery", _sources(args), identities=not args.no_identities, identity=args.identity
    )
    named = commands.build(
        args.gallery,
        args.checkpoint,
        images,
        commands.Layout(args.kind, args.shards),
        adapt_norm=args.adapt_norm is not None,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    print(f"{args.gallery}: {counted(len(named.gallery), 'image')} of {who(images)}")


def _sources(args: argparse.Namespace) -> Sources:
    """Return how to find images: the pattern for paths in folders, and the root of paths in CSV files."""
    return Sources(args.root, pattern=args.pattern)


def _add(args: argparse.Namespace) -> None:
    images = list_images(
        args.images, "gallery", _sources(args), identities=not args.no_identities, identity=args.identity
    )
    added = commands.add(args.gallery, images, checkpoint=args.checkpoint, skip_bad=args.skip_bad, device=args.device)
    print(
        f"{args.gallery}: {counted(added, 'image')} added, {len(images) - added} already in it or skipped; they show "
        f"{who(images)}"
    )
    if args.identity and added < len(images):
        print("images that are already in a gallery keep their name; remove them first to change it")


def _remove(args: argparse.Namespace) -> None:
    removed = commands.remove(args.gallery, args.images, escaped(args.identity), everywhere=args.everywhere)
    print(f"{args.gallery}: {counted(removed, 'image')} removed")


def _calibrate(args: argparse.Namespace) -> None:
    calibration = commands.calibrate(
        args.gallery,
        list_images(args.images, "query", _sources(args)),
        false_accept_rate=args.false_accept_rate,
        checkpoint=args.checkpoint,
        skip_bad=args.skip_bad,
        device=args.device,
    )
    rate = f"{100 * args.false_accept_rate:g} %"
    print(f"{args.gallery}: threshold {calibration['threshold']:.4f}, which at most {rate} of impostors reach")
    if calibration["true_positive_rate"] is not None:
        share = 100 * calibration["true_positive_rate"]
        print(f"{share:.1f} % of {calibration['known']} images of people in the gallery are recognised")


def _query(args: argparse.Namespace) -> None:
    require_writable(args.out / "matches.json")
    results = commands.query(
        args.gallery,
        args.images,
        commands.Wanted(
            args.top,
            args.other_cameras,
            Filter(
                args.only_camera or None,
                args.not_camera,
                escaped(args.only_identity) or None,
                escaped(args.not_identity),
                args.since,
                args.until,
            ),
            args.camera,
        ),
        sources=_sources(args),
        checkpoint=args.checkpoint,
        cross_model=args.cross_model,
        device=args.device,
    )
    write_findings(results, args.out, blur=args.blur)
    if len(results["queries"]) <= FEW:
        for finding in results["queries"]:
            print(f"{finding['image']}: {verdict(finding, results['threshold'], results['false_accept_rate'])}")
    print("\n".join(summary(results)))
    if caveat := too_few(results["calibrated_on"], results["false_accept_rate"]):
        print(f"the threshold: {caveat}")
    print(f"matches are in {args.out / 'matches.html'} and matches.json")


def _compare(args: argparse.Namespace) -> None:
    from lreid.gallery.comparison import compare, said

    comparison = compare(args.images, checkpoint=args.checkpoint, where=args.gallery, device=args.device)
    for pair in comparison["pairs"]:
        print(f"{pair['images'][0]}, {pair['images'][1]}: {said(pair, comparison)}")
    for note in comparison["notes"]:
        print(note)


def _info(args: argparse.Namespace) -> None:
    for name, value in commands.describe(args.gallery).items():
        print(f"{name:22} {value}")


def _check(args: argparse.Namespace) -> int | None:
    from lreid.gallery import release_check, release_page

    limits = release_check.Limits(_per_cent("--max-lost", args.max_lost), _per_cent("--max-fpir", args.max_fpir))
    require_writable(args.out / release_page.PAGE)
    comparison = release_check.check(
        args.gallery,
        release_check.Models(args.new, args.checkpoint, args.device),
        list_images(args.images, "query", _sources(args)),
        limits,
        out=args.out,
        skip_bad=args.skip_bad,
    )
    print(release_page.write_check(comparison, args.out, blur=args.blur))
    print(f"page: {args.out / release_page.PAGE}, figures: {release_page.FIGURES}")
    return None if comparison.results["passed"] else OVER_LIMIT


def _per_cent(option: str, text: str | None) -> float | None:
    """Parse a limit in per cent, such as ``1%``."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]+)?)\s*%\s*", text, re.ASCII)
    if match is None or float(match[1]) > 100:
        raise InputError(f"{option} is {text!r}; give a percentage from 0% to 100%, such as 1%")
    return float(match[1])


def _reindex(args: argparse.Namespace) -> None:
    from lreid.gallery import versions

    report = versions.reindex(
        args.gallery, args.checkpoint, skip_bad=args.skip_bad, restart=args.restart, device=args.device
    )
    print(
        f"{args.gallery}: {counted(report['images'], 'image')} with features of the new model, {report['extracted']} "
        "extracted now; calibrate the gallery again, or return to the old model with rollback"
    )


def _rollback(args: argparse.Namespace) -> None:
    from lreid.gallery import versions

    print(f"{args.gallery}: model {versions.roll_back(args.gallery)} is used again")


def _migrate(args: argparse.Namespace) -> None:
    from lreid.gallery import versions

    images, same = versions.migrate(args.gallery, args.to, kind=args.kind, shards=args.shards)
    print(f"{args.to}: {counted(images, 'image')}, {100 * same:.1f} % of sampled matches as in {args.gallery}")
