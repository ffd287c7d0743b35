"""Write a model as one file for other programs: images in, features out.

lreid export runs/mine-dwopp-seed0/checkpoints/task-05.pt --out mine.onnx    # uint8 images (n, H, W, 3)
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --normalise outside       # float images (n, 3, H, W)
lreid export zoo:dwopp-synthetic-10 --out mine.pt2 --format torch             # for torch.export.load
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --for boxmot              # or for another tracker

The file is compared with the model before it is written. It holds the neck, but not the resizing of images, which is
PIL's bicubic one. Galleries are built and searched with mine.onnx as with the model: --checkpoint mine.onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid export``."""
    parser.add_argument("model", metavar="CHECKPOINT|zoo:NAME", help="a trained model")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".onnx, or .pt2 for torch")
    parser.add_argument(
        "--for",
        dest="tool",
        choices=("boxmot", "ultralytics", "deep-sort-realtime", "reid"),
        help="write what this tool loads, and a card beside it (reid: a folder)",
    )
    parser.add_argument("--format", choices=("onnx", "torch"), help="default: onnx")
    parser.add_argument(
        "--normalise",
        choices=("inside", "outside"),
        help="inside: the file takes uint8 RGB images; outside: normalised float ones (default: inside)",
    )
    parser.add_argument(
        "--opset", type=int, default=18, metavar="N", help="version of ONNX's operators (default: %(default)s)"
    )
