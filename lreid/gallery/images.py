"""Turn what a user passes as images (folders, CSV files, files, arrays) into labelled images, pixels and features."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lreid.data.datasets import Sources, is_address
from lreid.data.images import Images, Size, typical_size, unreadable
from lreid.data.listing import (
    LIST,
    Listed,
    Pattern,
    camera_in,
    first_few,
    image_files,
    list_labelled,
    listed_by_folder,
    listed_by_name,
    named_as_market,
    numbered,
)
from lreid.data.records import Record
from lreid.errors import ArgumentError, InputError, OutOfMemory, counted
from lreid.gallery.store import LabelNames, hash_of
from lreid.utils.clock import require_clock
from lreid.utils.files import spelled
from lreid.utils.identities import UNKNOWN, label_of, label_text, require_written
from lreid.utils.reading import escaped

if TYPE_CHECKING:
    from lreid.models.embedder import Embedder
    from lreid.retrieval.camera_norm import CameraNorm

logger = logging.getLogger("lreid")

# A scene has more than this many pixels per pixel of the network's input, and is so many times wider for its height.
SCENE_PIXELS, SCENE_WIDTH = 8, 1.4
Model: TypeAlias = "str | Embedder"  # the fingerprint of a network for features; a network or its name for images


# --- images of commands: folders, CSV files and single files


class SearchImage(NamedTuple):
    """An image with its labels; ``zip(*images)`` gives the labels as arguments of :meth:`lreid.Gallery.add`.

    Attributes:
        identity, camera: names of identity and camera, or None if unknown.
        time: time in seconds, -1 if unknown.
    """

    path: str
    identity: str | None
    camera: str | None
    time: int = UNKNOWN


def name_of(label: Any) -> str | None:
    """Return a label of a gallery as text, or None if it is unknown."""
    return None if label is None or label == UNKNOWN else str(label)


def list_images(
    sources: Iterable[Path],
    split: str,
    where: Sources = Sources(),  # noqa: B008 (frozen)
    *,
    identities: bool = True,
    identity: str | None = None,
) -> list[SearchImage]:
    """List the images of folders and CSV files, each image once, with absolute paths.

    Args:
        sources: folders (see :func:`lreid.data.listing.list_labelled`), CSV files or single images. If a folder has
            a file ``index.csv``, this file lists the images of the folder. A CSV file may have a column ``time`` with
            whole seconds since a common start.
        split: the split to list, if a CSV file has splits. Images of all domains of this split are listed.
        where: pattern for paths in folders, and root folder of the image paths in CSV files.
        identities: whether to read identities; pass False if folders are not named after people.
        identity: the person whom all images show; if it is given, identities in paths and CSV files are ignored.

    Raises:
        InputError: a source cannot be read or contains no image, or two sources give one image different labels.
    """
    identities = identities and identity is None
    person = name_of(label_of(require_written(identity, "--identity"), "--identity"))
    images: dict[str, SearchImage] = {}
    for source in sources:
        for image in _listed(source, split, where, labelled=identities):
            path, name = absolute(image.path), image.identity if identities else person
            before = images[path].identity if path in images else None
            if before is not None and name is not None and before != name:
                raise InputError(f"{path}: is {before}, but {source} names it {name}; pass folders that do not overlap")
            if before is None:
                images[path] = SearchImage(path, name, image.camera, _seconds(image, source))
    return list(images.values())


def list_queries(sources: Iterable[Path], where: Sources = Sources()) -> list[SearchImage]:  # noqa: B008 (frozen)
    """List single images, or all images of folders and CSV files, with unchanged paths; identities may be missing."""
    queries = [image for source in sources for image in _listed(source, "query", where, labelled=False)]
    # A single file has no identity, unless another source names it.
    identities = {absolute(image.path): image.identity for image in queries if image.identity is not None}
    return [SearchImage(image.path, identities.get(absolute(image.path)), image.camera) for image in queries]


def who(images: Iterable[SearchImage]) -> str:
    """Summarise identities and cameras, as in ``3 identities (anna, ben, carl) by 2 cameras (1, 2)``."""
    identities, cameras = numbered(image.identity for image in images), numbered(image.camera for image in images)
    seen = f" by {_counted('camera', cameras)}" if cameras else ", cameras unknown"
    if not identities:
        return f"no named person (name folders after people, or pass --identity){seen}"
    return _counted("identity", identities) + seen


def _counted(what: str, names: Collection[str]) -> str:
    return f"{counted(len(names), what)} ({first_few(names)})"


def _listed(source: Path, split: str, where: Sources, *, labelled: bool) -> list[Listed]:
    """List the images of one source. With ``labelled``, folders must name identities, and junk is left out."""
    if (source / LIST).is_file():
        source = source / LIST
    pattern = Pattern(where.pattern) if where.pattern else None
    if source.is_dir():
        return list_labelled(source, pattern=pattern) if labelled or pattern else _every_image(source)
    if source.suffix.lower() in (".csv", ".parquet"):
        from lreid.data.tables import read_table

        images = read_table(source, splits=False, named=False, root=Path(where.root))
        if not (wanted := [image for image in images if image.split in ("", split)]):
            raise InputError(f"{source}: has no image of the split {split}; add some")
        return wanted
    if not (source.exists() or is_address(str(source))):
        # An error even with skip_bad, which only skips unreadable images.
        raise InputError(f"{source}: no such folder or file; correct the name")
    if pattern is None:
        return [Listed(str(source), None, camera_in(source.name))]
    path = PurePath(*source.absolute().parts[-pattern.depth :])
    if (labels := pattern.read(path)) is None:
        raise InputError(f"{source}: the pattern {pattern.text} does not match the paths; correct it, or remove it")
    return [Listed(str(source), None, label_text(escaped(labels[1])))]


def _every_image(folder: Path) -> list[Listed]:
    """List every image of a folder, even junk; identities are None unless the folder happens to name them."""
    files = image_files(folder)
    try:
        labelled = listed_by_name(files) if named_as_market(files) else listed_by_folder(folder, files)
    except InputError:  # queries need no identities
        labelled = []
    identities = {image.path: image.identity for image in labelled}
    return [Listed(str(file), identities.get(str(file)), camera_in(str(file.relative_to(folder)))) for file in files]


def _seconds(image: Listed, where: Path) -> int:
    if not image.time:
        return UNKNOWN
    if not image.time.isascii() or not image.time.isdecimal() or len(image.time) > 18:
        raise InputError(f"{where}: time of {image.path} is {image.time!r}; write whole seconds, or leave it empty")
    require_clock(int(image.time), f"{where}: time of {image.path}")
    return int(image.time)


def read_images(
    images: Sequence[SearchImage], model: Embedder, names: LabelNames, *, skip_bad: bool = False
) -> tuple[list[SearchImage], Images]:
    """Return the images that can be read, and their pixels at the input size of a model.

    Args:
        images: images from :func:`list_images` or :func:`list_queries`.
        names: names in the gallery, see :class:`lreid.gallery.store.About`. The records of the pixels contain the
            numbers that identities and cameras have in the gallery. A name that is not in the gallery has the number
            that it will get there.
        skip_bad: whether to skip images that cannot be read, with a warning, even if no image remains.

    Raises:
        InputError: an image cannot be read.
    """
    numbers = {what: {name: number for number, name in of_kind.items()} for what, of_kind in names.items()}

    def number(what: str, name: str | None) -> int:
        return UNKNOWN if name is None else numbers.get(what, {}).get(name, hash_of(name))

    records = [Record(each.path, number("identity", each.identity), number("camera", each.camera)) for each in images]
    try:
        pixels = Images(records, height=model.height, width=model.width, cache_gib=1.0, skip_bad=skip_bad)
    except InputError as error:
        if not skip_bad or isinstance(error, OutOfMemory):
            raise
        pixels = Images([], height=model.height, width=model.width)  # empty, because none of the images can be read
        pixels.skipped = [record.path for record in records]
    if pixels.skipped:
        count = counted(len(pixels.skipped), "image")
        logger.warning("skipped %s that cannot be read; the first is %s", count, pixels.skipped[0])
    warn_of_scenes(typical_size(pixels.records), model)
    by_path = {image.path: image for image in images}
    return [by_path[record.path] for record in pixels.records], pixels


def warn_of_scenes(size: Size | None, model: Embedder) -> None:
    """Warn if images of this size are much larger and wider than the crops for which a model was trained."""
    area, ratio = model.height * model.width, model.height / model.width
    if size is not None and size.pixels > SCENE_PIXELS * area and size.ratio < ratio / SCENE_WIDTH:
        logger.warning(
            "images of %.1f megapixels look like whole scenes, but the model compares crops of one person or vehicle; "
            "crop them first, for instance with a detector",
            size.pixels / 1e6,
        )


def readable(images: Sequence[SearchImage], skip_bad: bool) -> list[str]:
    """Return the paths of images; with ``skip_bad``, of those that can be read."""
    records = [Record(image.path, UNKNOWN, UNKNOWN) for image in images]
    skipped = {*unreadable(records)} if skip_bad else set()
    return [record.path for record in records if record.path not in skipped]


def require_some(pixels: Images) -> None:
    """Check that at least one image can be read, for a gallery or a threshold."""
    if not len(pixels):
        raise InputError(f"none of {len(pixels.skipped)} images can be read, such as {pixels.skipped[0]}; replace them")


# --- images of Python: any form of Embedder.extract


def named(images: Any, paths: Any, ids: Any, cams: Any) -> tuple[Any, Any, Any, Any]:
    """Return images, absolute paths, identities and cameras; labels of images in a folder are read from the paths.

    Args:
        images: features (n, D), or images in any form of :meth:`lreid.models.Embedder.extract`.
        paths, ids, cams: see :meth:`lreid.Gallery.build`.

    Raises:
        ArgumentError: the images are features or are in memory, and ``paths`` is missing.
        InputError: the folder contains no images, or only some of its files are named as in Market-1501.
    """
    if paths is not None:
        return images, paths, ids, cams
    if are_features(images):
        raise ArgumentError("paths", "is missing; name the image of each row of features")
    from lreid.models.inputs import sequence_of

    if ids is cams is None and isinstance(images, (str, os.PathLike)) and os.path.isdir(images):
        listed: list[Any] = list_labelled(Path(images))
        files, ids, cams = ([image[column] for image in listed] for column in range(3))
    else:
        sequence = sequence_of(images)
        files = list(sequence) if isinstance(sequence, Iterator) else sequence
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        raise ArgumentError("paths", "is missing; give each image in memory a name: paths=['a.jpg', 'b.jpg']")
    return files, [absolute(os.fspath(file)) for file in files], ids, cams


def absolute(path: str) -> str:
    """Return the name under which a gallery stores an image, its absolute path."""
    return path if is_address(path) else spelled(os.path.abspath(path))


def are_features(images: Any) -> bool:
    """Whether the argument consists of features, which are rows of floats, instead of images."""
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (list, tuple, float)):
        return True
    return getattr(images, "ndim", 0) == 2 and "float" in str(images.dtype)


def fingerprint_and_network(
    images: Any, model: Model | None, extras: dict[str, np.ndarray]
) -> tuple[str, Embedder | None]:
    """Return the fingerprint and the network of a model. The network is None if ``model`` is only a fingerprint.

    Args:
        images: see :func:`named`.
        model: model, or None for the network that the gallery records.
        extras: extras of the gallery; empty for a new gallery.

    Raises:
        ArgumentError: no model is given, and the gallery does not record one.
        InputError: :func:`lreid.load_model` raises an error, or the gallery's features are standardised per camera.
    """
    if are_features(images) and isinstance(model, str):
        return model, None
    if model is None and "checkpoint" in extras and not are_features(images):
        model = str(extras["checkpoint"][0])
    if model is None:
        raise ArgumentError("model", "is missing; pass lreid.load_model(…) for images, its fingerprint for features")
    from torch import nn

    from lreid.loading import load_model
    from lreid.models.fingerprint import fingerprint

    network = model if isinstance(model, nn.Module) else load_model(model)
    if not are_features(images) and any(name.startswith("norm/") for name in extras):
        raise InputError("the gallery's features are standardised per camera; use lreid search query")
    return fingerprint(network), network


def features_of(images: Any, network: Embedder | None, extras: dict[str, np.ndarray]) -> Any:
    """Extract features (n, D) of images with a network; return features unchanged."""
    if network is None or are_features(images):
        return images
    return network.extract(images, flip=bool(extras.get("flip", [False])[0]))


@dataclass(frozen=True)
class Extraction:
    """How the features of a gallery are computed from images; a gallery stores it for later commands.

    Attributes:
        checkpoint: name of the network for :func:`lreid.load_model`.
        flip: whether each feature is the sum of the features of an image and its mirror image (``EVAL.FLIP``).
        norm: statistics that standardise the features per camera, or None if features are not standardised.
    """

    checkpoint: str
    flip: bool = False
    norm: CameraNorm | None = None

    def __call__(self, network: Embedder, images: Images) -> np.ndarray:
        """Extract features (n, D) of images."""
        features = network.extract(images, flip=self.flip)
        return self.norm(features, images.camids) if self.norm else features

    @classmethod
    def of(cls, checkpoint: str | Path) -> Extraction:
        """How the config of a checkpoint says that features are computed."""
        from lreid.loading import model_config

        return cls(str(checkpoint), model_config(checkpoint).EVAL.FLIP)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], width: int) -> Extraction:
        """Read what :meth:`to_arrays` returned, for features of length ``width``."""
        norm = None
        if any(name.startswith("norm/") for name in arrays):
            from lreid.retrieval.camera_norm import CameraNorm  # loads torch

            norm = CameraNorm.from_arrays(arrays, width)
        return cls(str(arrays["checkpoint"][0]), bool(arrays["flip"][0]), norm)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays that a gallery can store."""
        arrays = {"checkpoint": np.array([self.checkpoint]), "flip": np.array([self.flip])}
        return arrays | (self.norm.to_arrays() if self.norm else {})
