"""Tiny archives of classes in the layouts of CIFAR, MNIST, Tiny-ImageNet and others; images are squares of a colour."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from PIL import Image

Images = dict[str, tuple[np.ndarray, list[int]]]  # of each split: (n, H, W, 3) uint8, and labels


def squares(classes: int, *, train: int, test: int, size: int = 32, seed: int = 0) -> Images:
    """Of each class a colour, which the images of it have nearly, and labels in a random order."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(30, 220, (classes, 3))
    found = {}
    for split, each in (("train", train), ("test", test)):
        labels = rng.permutation(np.repeat(np.arange(classes), each))
        noise = rng.integers(-20, 20, (len(labels), size, size, 3))
        found[split] = (np.clip(colours[labels, None, None] + noise, 0, 255).astype(np.uint8), labels.tolist())
    return found


def planes(images: np.ndarray) -> np.ndarray:
    """(n, 3072): of each image its red, green and blue values one after the other."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_cifar10(home: Path, images: Images) -> Path:
    """Five batches and a test batch."""
    home.mkdir(parents=True)
    pixels, labels = images["train"]
    parts = {f"data_batch_{number}": (pixels[number - 1 :: 5], labels[number - 1 :: 5]) for number in range(1, 6)} | {
        "test_batch": images["test"]
    }
    for name, (part, part_labels) in parts.items():
        _dump(home / name, {"data": planes(part), "labels": part_labels, "batch_label": "x"})
    _dump(home / "batches.meta", {"label_names": _names(labels)})
    return home


def write_cifar100(home: Path, images: Images) -> Path:
    """A training and a test file, with fine and coarse labels."""
    home.mkdir(parents=True)
    for name, (pixels, labels) in images.items():
        coarse = [label // 5 for label in labels]
        _dump(home / name, {"data": planes(pixels), "fine_labels": labels, "coarse_labels": coarse})
    _dump(home / "meta", {"fine_label_names": _names(images["train"][1])})
    return home


def write_mnist(home: Path, images: Images) -> Path:
    """Four idx files of the red values."""
    home.mkdir(parents=True)
    for name, (pixels, labels) in (("train", images["train"]), ("t10k", images["test"])):
        for kind, array in (("images-idx3", pixels[..., 0]), ("labels-idx1", np.array(labels, np.uint8))):
            content = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
            (home / f"{name}-{kind}-ubyte").write_bytes(content)
    return home


def write_svhn(home: Path, images: Images) -> Path:
    """Two MATLAB files, where the digit 0 is the label 10."""
    home.mkdir(parents=True)
    for split, (pixels, labels) in images.items():
        content = {"X": pixels.transpose(1, 2, 3, 0), "y": np.array([label or 10 for label in labels])[:, None]}
        scipy.io.savemat(home / f"{split}_32x32.mat", content)
    return home


def write_tiny_imagenet(home: Path, images: Images) -> Path:
    """Folders of training images, and a list of validation images."""
    for row, (pixels, label) in enumerate(zip(*images["train"], strict=True)):
        _save(home / f"train/n{label:08d}/images/n{label:08d}_{row}.JPEG", pixels)
    for row, pixels in enumerate(images["test"][0]):
        _save(home / f"val/images/val_{row}.JPEG", pixels)
    lines = [f"val_{row}.JPEG\tn{label:08d}\t0\t0\t62\t62\n" for row, label in enumerate(images["test"][1])]
    (home / "val/val_annotations.txt").write_text("".join(lines))
    (home / "wnids.txt").write_text("".join(f"n{label:08d}\n" for label in sorted(set(images["train"][1]))))
    return home


def write_mini_imagenet(home: Path, images: Images) -> Path:
    """One folder of images and three lists, each with classes of its own."""
    rows = {
        f"n{label:08d}{number:08d}.jpg": (f"n{label:08d}", pixels)
        for number, (pixels, label) in enumerate(zip(*images["train"], strict=True))
    }
    for name, (_, pixels) in rows.items():
        _save(home / "images" / name, pixels)
    labels = sorted({label for label, _ in rows.values()})
    for part, chosen in (("train", labels[:-2]), ("val", labels[-2:-1]), ("test", labels[-1:])):
        lines = [f"{name},{label}\n" for name, (label, _) in rows.items() if label in chosen]
        (home / f"{part}.csv").write_text("filename,label\n" + "".join(lines))
    return home


def _save(file: Path, pixels: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, quality=95)


def _names(labels: list[int]) -> list[str]:
    return [f"thing{label}" for label in range(max(labels) + 1)]


def _dump(file: Path, content: dict[str, Any]) -> None:
    file.write_bytes(pickle.dumps(content, protocol=2))
