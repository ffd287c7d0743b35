"""The command ``lreid export``."""

from __future__ import annotations

import argparse
import logging

from lreid.errors import InputError
from lreid.export import export, export_for
from lreid.files import list_folder
from lreid.loading import load_model, model_config


def run(args: argparse.Namespace) -> None:
    """Writes the file and says how far its features are from the model's."""
    for name in ("onnxscript", "onnx_ir"):  # torch's exporter tells its passes by them
        logging.getLogger(name).setLevel(logging.WARNING)
    model, config = load_model(args.model, "cpu"), model_config(args.model).dump()
    if args.tool:
        for option in ("format", "normalise"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option}: --for {args.tool} decides it; leave one of the two out")
        difference = export_for(args.tool, model, args.out, config=config, source=args.model, opset=args.opset)
    else:
        difference = export(
            model,
            args.out,
            form=args.format or "onnx",
            normalise=args.normalise or "inside",
            opset=args.opset,
            config=config,
        )
    parts = list_folder(args.out, "*.safetensors") if args.out.is_dir() else [args.out]
    size = sum(each.stat().st_size for each in parts) / 2**20
    print(f"{args.out}: {model.name}, {model.height} x {model.width} pixels to {model.dim} numbers, {size:.1f} MiB;")
    print(f"its features differ from the model's by {difference:.0e} of the largest one")
