"""CIFAR-10 and CIFAR-100 (Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009).

    datasets/cifar10/cifar-10-batches-py/        datasets/cifar100/cifar-100-python/
    ├── data_batch_1 … data_batch_5              ├── train
    ├── test_batch                               ├── test
    └── batches.meta                             └── meta

The data sets are for classification, not for re-identification. Both data sets show classes of objects in images of 32
x 32 pixels; each class has training and test images. The binary archives (`cifar-10-batches-bin/`, `cifar-100-binary/`)
are supported too. On first use, lreid unpacks the images as PNG files into `images/train/CLASS/` and
`images/test/CLASS/` next to the archive. For CIFAR-100, lreid uses the 100 fine classes. The order of the classes in
training is the order of their labels.
"""

import codecs
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lreid.classification.image_folder import Unpacked, unpacked
from lreid.data.layout import describe_folder
from lreid.data.records import CameraPolicy, DataSet
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError, raise_if_out_of_memory

PIXELS = 3 * 32 * 32  # values per image, one plane per colour
# The functions that pickles of arrays call, in all versions of numpy; no other functions are allowed.
HARMLESS: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
HARMLESS |= {
    (f"numpy.{core}.{module}", name): np.empty(0).__reduce_ex__(protocol)[0]
    for core in ("core", "_core")
    for module, name, protocol in (("multiarray", "_reconstruct", 2), ("numeric", "_frombuffer", 5))
}
HARMLESS["_codecs", "encode"] = codecs.encode


class Archive:
    """File names and contents of CIFAR-10 or CIFAR-100.

    Args:
        title: name of the data set in error messages.
        files: file names of each split.
        labels: key of the labels in a pickled file.
        names: key of the class names in the pickled file ``meta``.
        meta: names of the two files with the class names: the pickled file and the plain text file.
        label_bytes: number of bytes before each image in a binary file, of which the last one is the label.
    """

    def __init__(
        self,
        title: str,
        files: dict[str, Sequence[str]],
        labels: str,
        names: str,
        meta: tuple[str, str],
        label_bytes: int,
    ) -> None:
        self.title, self.files, self.labels, self.names = title, files, labels, names
        self.meta, self.label_bytes = meta, label_bytes

    def read(self, home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
        """Read the data set, after unpacking its images if necessary."""
        return unpacked(self.title.lower().replace("-", ""), home, lambda: self.images(home), cameras=cameras)

    def images(self, home: Path) -> Iterator[Unpacked]:
        """Yield all images. Names of classes are like ``07_horse``, so that they sort by label.

        Raises:
            InputError: files are missing or damaged.
        """
        batches = [name for names in self.files.values() for name in names]
        pickled = not any((home / f"{name}.bin").is_file() for name in batches)
        expected = [*batches, self.meta[0]] if pickled else [*(f"{name}.bin" for name in batches), self.meta[1]]
        missing = [name for name in expected if not (home / name).is_file()]
        if missing:
            raise InputError(
                f"{self.title}: {home} lacks {', '.join(missing)}; {describe_folder(home)}; unpack the archive "
                "there unchanged"
            )
        names = self._names(home, pickled)
        for split, files in self.files.items():
            for name in files:
                file = home / (name if pickled else f"{name}.bin")
                pixels, labels = self._pickled(file) if pickled else self._binary(file)
                if len(labels) and not 0 <= min(labels) <= max(labels) < len(names):
                    raise self._other(file, f"has labels from {min(labels)} to {max(labels)}, but {len(names)} names")
                for image, label in zip(pixels, labels, strict=True):
                    yield split, f"{label:02d}_{names[label]}", image.reshape(3, 32, 32).transpose(1, 2, 0)

    def _names(self, home: Path, pickled: bool) -> list[str]:
        file = home / self.meta[0 if pickled else 1]
        if pickled:
            content = _unpickled(file)
            if self.names not in content:
                raise self._other(file, f"has no {self.names}")
            names = [name.decode() if isinstance(name, bytes) else str(name) for name in content[self.names]]
        else:
            names = file.read_text(encoding="ascii", errors="replace").split()
        if not all(name.isidentifier() for name in names):  # they become folder names
            raise self._other(file, "has class names that are not words")
        return names

    def _pickled(self, file: Path) -> tuple[np.ndarray, list[int]]:
        """Return pixels (n, 3072) uint8 and labels (n,)."""
        content = _unpickled(file)
        pixels, labels = np.asarray(content.get("data")), content.get(self.labels)
        if labels is None:
            raise self._other(file, f"has no {self.labels}")
        if pixels.shape != (len(labels), PIXELS) or pixels.dtype != np.uint8:
            raise self._other(file, f"has data of shape {pixels.shape} and {len(labels)} labels")
        return pixels, [int(label) for label in labels]

    def _binary(self, file: Path) -> tuple[np.ndarray, list[int]]:
        """Return pixels (n, 3072) uint8 and labels (n,)."""
        content = np.fromfile(file, np.uint8)
        row = self.label_bytes + PIXELS
        if len(content) % row:
            raise self._other(file, f"has {len(content)} bytes, which is not a multiple of {row}")
        rows = content.reshape(-1, row)
        return rows[:, self.label_bytes :], rows[:, self.label_bytes - 1].tolist()

    def _other(self, file: Path, fault: str) -> InputError:
        return InputError(
            f"{file}: {fault}; if it belongs to another data set, replace it by the archive of {self.title}"
        )


class _Plain(pickle.Unpickler):
    """Unpickler for arrays and plain values, which refuses all other functions that a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return HARMLESS[module, name]


def _unpickled(file: Path) -> dict[str, Any]:
    """Read a pickled dictionary, with text as its keys."""
    try:
        with open(file, "rb") as stream:
            content = _Plain(stream, encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
    except Exception as error:  # a damaged file can raise anything
        raise_if_out_of_memory(error, file)
        raise InputError(f"{file}: is not a batch file of CIFAR ({error}); download the archive again") from None


CIFAR10 = Archive(
    "CIFAR-10",
    {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]},
    labels="labels",
    names="label_names",
    meta=("batches.meta", "batches.meta.txt"),
    label_bytes=1,
)
CIFAR100 = Archive(
    "CIFAR-100",
    {"train": ["train"], "test": ["test"]},
    labels="fine_labels",
    names="fine_label_names",
    meta=("meta", "fine_label_names.txt"),
    label_bytes=2,
)
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"

SPECS = (
    Spec(
        name="cifar10",
        read=CIFAR10.read,
        title="CIFAR-10",
        source=SOURCE,
        layout=Layout(tuple(f"{above}cifar-10-batches-{form}" for form in ("py", "bin") for above in ("cifar10/", ""))),
        folder="cifar10",
        cameras=False,
        published=published(train=(10, 50000), query=(10, 5000), gallery=(10, 5000)),
        remark="classes",
    ),
    Spec(
        name="cifar100",
        read=CIFAR100.read,
        title="CIFAR-100",
        source=SOURCE,
        layout=Layout(
            tuple(f"{above}cifar-100-{form}" for form in ("python", "binary") for above in ("cifar100/", ""))
        ),
        folder="cifar100",
        cameras=False,
        published=published(train=(100, 50000), query=(100, 5000), gallery=(100, 5000)),
        remark="classes",
    ),
)
