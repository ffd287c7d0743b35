#!/usr/bin/env python
"""Writes a model as one file for other programs: images in, features out.

python tools/export.py runs/mine-dwopp-seed0/checkpoints/task-05.pt --out mine.onnx    # uint8 images (n, H, W, 3)
python tools/export.py zoo:dwopp-synthetic-10 --out mine.onnx --normalise outside       # float images (n, 3, H, W)
python tools/export.py zoo:dwopp-synthetic-10 --out mine.pt2 --format torch             # for torch.export.load

The file is compared with the model before it is written. It holds the neck, but not the resizing of images, which is
PIL's bicubic one. Galleries are built and searched with mine.onnx as with the model: --checkpoint mine.onnx.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_tool
from lreid.apps.export import OLDEST_OPSET, SUFFIXES, export
from lreid.loading import load_model, model_config


def main(args: argparse.Namespace) -> None:
    for name in ("onnxscript", "onnx_ir"):  # torch's exporter tells its passes by them
        logging.getLogger(name).setLevel(logging.WARNING)
    model, config = load_model(args.model), model_config(args.model).dump()
    difference = export(model, args.out, form=args.format, normalise=args.normalise, opset=args.opset, config=config)
    size = args.out.stat().st_size / 2**20
    print(f"{args.out}: {model.name}, {model.height} x {model.width} pixels to {model.dim} numbers, {size:.1f} MiB;")
    print(f"its features differ from the model's by {difference:.0e} of the largest one")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="CHECKPOINT|zoo:NAME")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".onnx, or .pt2 for torch")
    parser.add_argument("--format", choices=tuple(SUFFIXES), default="onnx", help="default: onnx")
    parser.add_argument(
        "--normalise",
        choices=("inside", "outside"),
        default="inside",
        help="inside: the file takes uint8 RGB images; outside: normalised float ones (default: inside)",
    )
    parser.add_argument(
        "--opset", type=int, default=OLDEST_OPSET, help=f"version of ONNX's operators (default: {OLDEST_OPSET})"
    )
    sys.exit(run_tool(parser, main))
