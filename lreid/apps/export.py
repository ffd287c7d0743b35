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
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from lreid.apps.arguments import option, require_model
from lreid.errors import InputError

if TYPE_CHECKING:
    from lreid.data.listing import Listed
    from lreid.models.embedder import Embedder


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


def run(args: argparse.Namespace) -> None:
    """Write the file, and print how much its features differ from those of the model."""
    from lreid.utils.files import list_folder, require_own

    if args.tool != "reid":
        require_own(args.out, *([f"{args.out}.md"] if args.tool else []))
    require_model(args.model)
    if args.int8 and (args.tool or args.format == "torch"):
        raise InputError("--int8: writes an ONNX file for lreid; remove --for and --format")

    from lreid.data.listing import list_labelled
    from lreid.export import export, export_for
    from lreid.export.int8 import export_int8
    from lreid.loading import load_model, model_config

    listed = list_labelled(args.int8) if args.int8 else []
    model, config = load_model(args.model, "cpu"), model_config(args.model).dump()
    options = {"normalise": args.normalise or "inside", "opset": args.opset, "config": config}
    if args.tool:
        for option in ("format", "normalise"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option}: --for {args.tool} determines it; remove one of the two")
        difference = export_for(args.tool, model, args.out, config=config, source=args.model, opset=args.opset)
    elif listed:
        export_int8(model, args.out, [image.path for image in listed], **options)
    else:
        difference = export(model, args.out, form=args.format or "onnx", **options)
    parts = list_folder(args.out, "*.safetensors") if args.out.is_dir() else [args.out]
    size = sum(each.stat().st_size for each in parts) / 2**20
    print(f"{args.out}: {model.name}, {model.height} x {model.width} pixels to {model.dim} numbers, {size:.1f} MiB;")
    if listed:
        print(_cost(model, args.out, listed))
    else:
        print(f"its features differ from the model's by at most {difference:.0e} of the largest number in them")


def _cost(model: "Embedder", file: Path, images: "list[Listed]") -> str:
    """Compare the accuracy and speed of an 8-bit file with its float32 model on images, both in onnxruntime."""
    from lreid.export import export
    from lreid.loading import load_model
    from lreid.retrieval import evaluate

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
        each = range(len(images))  # each image is a query, and all others are the gallery
        scores = [100 * evaluate(rows, rows, names, names, each, each).mAP for rows in features]
        text += f"mAP of these {len(images)} images: {scores[0]:.1f} as float32, {scores[1]:.1f} as int8\n"
    return text + f"extraction takes {seconds[1] / seconds[0]:.2f} x the CPU time of float32 on this processor"
