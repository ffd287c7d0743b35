"""The command ``lreid export``."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from lreid.data.listing import Listed
from lreid.data.listing import list_folder as list_images
from lreid.errors import InputError
from lreid.export import export, export_for
from lreid.export.int8 import export_int8
from lreid.loading import load_model, model_config
from lreid.models.embedder import Embedder
from lreid.retrieval import evaluate
from lreid.utils.files import list_folder


def run(args: argparse.Namespace) -> None:
    """Write the file, and print how much its features differ from those of the model."""
    if args.int8 and (args.tool or args.format == "torch"):
        raise InputError("--int8: writes an ONNX file for lreid; remove --for and --format")
    listed = list_images(args.int8) if args.int8 else []
    model, config = load_model(args.model, "cpu"), model_config(args.model).dump()
    if args.tool:
        for option in ("format", "normalise"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option}: --for {args.tool} determines it; remove one of the two")
        difference = export_for(args.tool, model, args.out, config=config, source=args.model, opset=args.opset)
    elif listed:
        options = {"normalise": args.normalise or "inside", "opset": args.opset, "config": config}
        export_int8(model, args.out, [image.path for image in listed], **options)
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
    if listed:
        print(_cost(model, args.out, listed))
    else:
        print(f"its features differ from the model's by at most {difference:.0e} of the largest number in them")


def _cost(model: Embedder, file: Path, images: list[Listed]) -> str:
    """Compare the accuracy and speed of an 8-bit file with its float32 model on images, both in onnxruntime.

    Each image is a query, and all other images of all cameras are the gallery. The images include those that calibrated
    the 8-bit file.
    """
    paths, seconds, features = [image.path for image in images], [], []
    with tempfile.TemporaryDirectory() as folder:
        float32 = Path(folder, "float32.onnx")
        export(model, float32)
        for exported in (load_model(float32), load_model(file)):
            exported.extract(paths[:8])
            start = time.process_time()
            features.append(exported.extract(paths, normalize=True))
            seconds.append(time.process_time() - start)
    cosines = (features[0] * features[1]).sum(1)
    names = [image.identity for image in images]
    text = f"cosine similarity with the model's features: mean {cosines.mean():.3f}, minimum {cosines.min():.3f}\n"
    if max(Counter(name for name in names if name is not None).values(), default=0) > 1:
        each = range(len(images))
        scores = [100 * evaluate(rows, rows, names, names, each, each).mAP for rows in features]
        text += f"mAP of these {len(images)} images: {scores[0]:.1f} as float32, {scores[1]:.1f} as int8\n"
    return text + f"extraction takes {seconds[1] / seconds[0]:.2f} x the CPU time of float32 on this processor"
