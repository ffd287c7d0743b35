"""Show which data sets are there, compare them with published counts, prepare their archives, and render people.

    lreid data list                                     # all of them, and where each is expected
    lreid data check market1501 viper                   # every difference from the published counts
    lreid data check csv:shop/index.csv --sheet shop.html      # with images of some identities
    lreid data prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip
    lreid data render people --domains 4 --workers 2    # rendered people, from the assets in ROOT/makehuman

Exit status: 2 when a data set is checked or prepared and is not complete.
"""

from __future__ import annotations

import argparse
from pathlib import Path

RENDERING = {  # options of lreid.data.rendered.render
    "domains": (6, "places with cameras, light and fashion of their own"),
    "train_identities": (80, "people to train on, of each domain"),
    "test_identities": (60, "people to search for, of each domain"),
    "images": (6, "images of each person"),
    "cameras": (4, "cameras of each domain"),
    "height": (256, "of images, pixels"),
    "width": (128, "of images, pixels"),
    "seed": (0, "another one makes other domains and other people"),
    "workers": (1, "processes that draw"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid data``."""
    parser.add_argument("action", choices=["list", "check", "prepare", "render"], help="what to do, see above")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="data sets, as in BENCHMARK.TRAIN; of render the new folder in ROOT"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("datasets"), metavar="DIR", help="DATA.ROOT (default: datasets)"
    )
    parser.add_argument(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="zip or tar file to unpack; may be given several times",
    )
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write an HTML page with some identities")
    parser.add_argument("--identities", type=int, default=12, metavar="N", help="identities on the page (default: 12)")
    rendering = parser.add_argument_group("render")
    for option, (default, about) in RENDERING.items():
        rendering.add_argument(
            f"--{option.replace('_', '-')}",
            type=int,
            default=default,
            metavar="N",
            help=f"{about} (default: {default})",
        )
