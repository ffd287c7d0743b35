"""Measure feature extraction from image files: time per image and peak memory of each engine, interleaved in one run.

    python tools/bench_extract.py                                # zoo:people, 500 images, one thread
    python tools/bench_extract.py --images 100 --rounds 5 --threads 2

The engine torch is the model of lreid.load_model, and the engine onnx is its ONNX file, which onnxruntime runs. The
engine plain is torch in batches of 128 images, as in training. Every engine runs in a separate process. Ratios compare
medians of CPU time, because other programs affect CPU time less than wall time.
"""

import argparse
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.cli import run_tool

BASE = "onnx"  # engine that the ratios compare with


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark."""
    parser.add_argument("--checkpoint", default="zoo:people", help="the model (default: %(default)s)")
    parser.add_argument("--images", type=int, default=500, metavar="N", help="images per round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads per engine (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="also measure plain torch in batches of 128 images")


def run(args: argparse.Namespace) -> None:
    """Measure every engine, and print one line per engine."""
    from lreid.loading import load_model

    engines = ["onnx", "torch", *["plain"] * args.plain]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as models:
        write_images(Path(folder), args.images)
        file = str(Path(models, "model.onnx"))
        context = get_context("spawn")
        exporting = context.Process(target=write_onnx, args=(args.checkpoint, file))
        exporting.start()  # in another process, whose memory does not count for an engine
        exporting.join()
        pipes: dict[str, Connection] = {}
        for engine in engines:
            pipes[engine], other = context.Pipe()
            source = file if engine == "onnx" else args.checkpoint
            context.Process(target=work, args=(other, source, engine, folder, args.threads), daemon=True).start()
        features = {engine: pipes[engine].recv() for engine in engines}
        plain = load_model(args.checkpoint, "cpu")  # in this process, so that it does not add to an engine's memory
        plain.inference = None
        wanted = plain.extract(sorted(Path(folder).iterdir())[: len(features[BASE])], normalize=True, batch_size=4)
        cosines = {engine: float((each * wanted).sum(1).min()) for engine, each in features.items()}
        rounds: dict[str, list[tuple[float, float]]] = {engine: [] for engine in engines}
        for number in range(args.rounds):
            for engine in engines if number % 2 == 0 else reversed(engines):
                pipes[engine].send("round")
                rounds[engine].append(pipes[engine].recv())
        for engine in engines:
            pipes[engine].send("memory")
        memory = {engine: pipes[engine].recv() for engine in engines}
    medians = {engine: statistics.median(cpu for cpu, _ in rounds[engine]) for engine in engines}
    for engine in engines:
        wall = statistics.median(clock for _, clock in rounds[engine])
        print(
            f"{engine:6} {1000 * medians[engine] / args.images:6.2f} ms of CPU time per image, "
            f"{1000 * wall / args.images:6.2f} ms of wall time, {medians[engine] / medians[BASE]:.2f} x {BASE}, "
            f"peak memory {memory[engine]} MiB, lowest cosine to plain torch {cosines[engine]:.7f}"
        )


def write_onnx(source: str, file: str) -> None:
    """Export a model to an ONNX file."""
    from lreid.export import export
    from lreid.loading import load_model

    export(load_model(source, "cpu"), file)


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files of smooth random colours, in usual sizes of crops."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for index in range(count):
        height = int(generator.integers(150, 350))
        colours = Image.fromarray(generator.integers(0, 256, (16, 8, 3), dtype=np.uint8))
        colours.resize((height // 2, height), Image.Resampling.BICUBIC).save(folder / f"{index:04d}.jpg", quality=85)


def work(pipe: Connection, source: str, engine: str, folder: str, threads: int) -> None:
    """Extract features of all images of a folder at each request."""
    import torch

    from lreid.loading import load_model
    from lreid.models.embedder import images_per_pass
    from lreid.utils.devices import peak_memory_mib

    torch.set_num_threads(threads)
    files = sorted(Path(folder).iterdir())
    model = load_model(source, "cpu")
    if engine == "plain":
        model.inference = None
    few = files[: 2 * images_per_pass(model.height, model.width)]
    pipe.send(model.extract(few, normalize=True))
    while True:
        if pipe.recv() == "memory":
            pipe.send(peak_memory_mib(torch.device("cpu")))
            return
        cpu, clock = time.process_time(), time.perf_counter()
        model.extract(files)
        pipe.send((time.process_time() - cpu, time.perf_counter() - clock))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add_arguments(parser)
    sys.exit(run_tool(parser, run))
