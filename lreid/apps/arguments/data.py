"""Show which data sets are there, check them, prepare their archives, cut them out of videos, and render people.

    lreid data list                                     # all of them, and where each is expected
    lreid data check market1501 viper                   # every difference from the published counts
    lreid data check csv:shop/index.csv --sheet shop.html      # with images of some identities
    lreid data check my/folder                          # images of your own, a folder a person
    lreid data from-tracks gate.mp4 --tracks gate.txt --out gate     # a video and a tracker's results
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
    "first_domain": (0, "number of the first one, to go on where another call with this seed ended"),
    "workers": (1, "processes that draw"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid data``."""
    parser.add_argument("action", choices=["list", "check", "prepare", "from-tracks", "render"], help="what to do")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="data sets, as in BENCHMARK.TRAIN; videos; of render the new folder or .zip file in ROOT",
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
    tracks = parser.add_argument_group("from-tracks")
    tracks.add_argument(
        "--tracks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a tracker's results in the format of MOT Challenge, one for each video (default: gt/gt.txt of a folder)",
    )
    tracks.add_argument("--out", type=Path, metavar="DIR", help="folder to make")
    tracks.add_argument("--every", type=float, default=0.5, metavar="S", help="seconds between images (default: 0.5)")
    tracks.add_argument("--most", type=int, default=20, metavar="N", help="images of a track (default: 20)")
    tracks.add_argument("--min-height", type=int, default=64, metavar="PX", help="of a box (default: 64)")
    tracks.add_argument(
        "--min-sharpness", type=float, default=0.0, metavar="V", help="variance of the Laplacian (default: 0)"
    )
    tracks.add_argument(
        "--same-identities", action="store_true", help="a number is the same person in all videos, as in MTMC"
    )
    rendering = parser.add_argument_group("render")
    for option, (default, about) in RENDERING.items():
        rendering.add_argument(
            f"--{option.replace('_', '-')}",
            type=int,
            default=default,
            metavar="N",
            help=f"{about} (default: {default})",
        )
