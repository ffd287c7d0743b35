"""Export a model to one file for other programs; the exported model takes images and returns features.

lreid export runs/mine-dwopp-seed0/checkpoints/task-05.pt --out mine.onnx    # uint8 images (n, H, W, 3)
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --normalise outside       # float images (n, 3, H, W)
lreid export zoo:dwopp-synthetic-10 --out mine.pt2 --format torch             # for torch.export.load
lreid export zoo:dwopp-synthetic-10 --out mine.onnx --for boxmot              # for a tracker
lreid export zoo:people --out fast.onnx --int8 my/images                      # 8-bit integers, faster on a CPU

lreid compares the features of the exported network with the features of the model before it replaces FILE. The exported
network contains the neck, but does not resize images; resize images with PIL's bicubic filter first. The file also
serves as the model of lreid search: --checkpoint mine.onnx.
"""

import argparse
from pathlib import Path

from lreid.apps.cli import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid export``."""
    parser.add_argument("model", metavar="CHECKPOINT|zoo:NAME", help="checkpoint of a trained model, or zoo:NAME")
    option(parser, "--out FILE", "file to write: .onnx, or .pt2 for --format torch", type=Path, required=True)
    tools = ("boxmot", "ultralytics", "deep-sort-realtime", "reid")
    card = "write the file that this tool loads (for reid, a folder), and a model card"
    option(parser, "--for", card, choices=tools, dest="tool")
    images = "quantise to 8-bit integers, calibrated on the images in FOLDER, and print the loss of accuracy"
    option(parser, "--int8 FOLDER", images, type=Path)
    option(parser, "--format", "format of the file (default: onnx)", choices=("onnx", "torch"))
    pixels = "inside: the model takes uint8 RGB images; outside: it takes normalised float images (default: inside)"
    option(parser, "--normalise", pixels, choices=("inside", "outside"))
    option(parser, "--opset N", "version of the ONNX operator set", 18)
