"""Write a model into one file for other programs; the file takes images and returns features.

lreid export runs/mine-dwopp-seed0/checkpoints/task-05.pt --out mine.onnx    # uint8 images (n, H, W, 3)
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --normalise outside       # float images (n, 3, H, W)
lreid export zoo:dwopp-synthetic-10 --out mine.pt2 --format torch             # for torch.export.load
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --for boxmot              # for a tracker
lreid export zoo:people --out fast.onnx --int8 my/images                      # 8-bit integers, faster on a CPU

lreid compares the features of the file with those of the model before it replaces FILE. The file contains the neck, but
does not resize images: resize them with PIL's bicubic filter first. lreid search also takes --checkpoint mine.onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid export``."""
    parser.add_argument("model", metavar="CHECKPOINT|zoo:NAME", help="a trained model")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file to write: .onnx, or .pt2 for --format torch"
    )
    parser.add_argument(
        "--for",
        dest="tool",
        choices=("boxmot", "ultralytics", "deep-sort-realtime", "reid"),
        help="write the format that this tool loads, and a card (for reid: a folder)",
    )
    parser.add_argument(
        "--int8",
        type=Path,
        metavar="FOLDER",
        help="compute with 8-bit integers, calibrated on the images in this folder; prints the loss of accuracy",
    )
    parser.add_argument("--format", choices=("onnx", "torch"), help="format of the file (default: onnx)")
    parser.add_argument(
        "--normalise",
        choices=("inside", "outside"),
        help="inside: the file takes uint8 RGB images; outside: normalised float images (default: inside)",
    )
    parser.add_argument(
        "--opset", type=int, default=18, metavar="N", help="version of the ONNX operators (default: %(default)s)"
    )
