"""A gallery together with its model and the processing of its features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lreid.data.images import Images
from lreid.errors import InputError
from lreid.gallery.gallery import Gallery, GalleryPlace
from lreid.gallery.images import SearchImage, origin, read_images
from lreid.utils.identities import UNKNOWN

if TYPE_CHECKING:
    from lreid.models.embedder import Embedder
    from lreid.retrieval.camera_norm import CameraNorm


@dataclass(eq=False)
class NamedGallery:
    """A gallery together with its model and the processing of its features.

    Attributes:
        where: place of the gallery, see :func:`lreid.gallery.gallery.place_of`; error messages begin with it.
        checkpoint: checkpoint of the model that built the gallery.
        flip: whether each feature is the sum of the features of an image and its mirror image (``EVAL.FLIP``).
        norm: statistics that normalise features of gallery and queries, or None if features are not normalised.
    """

    gallery: Gallery
    where: str
    checkpoint: Path
    flip: bool
    norm: CameraNorm | None

    @property
    def identities(self) -> dict[int, str]:
        """Names of identities by number, in the order in which they were added to the gallery."""
        return self.gallery.about.names.setdefault("identity", {})

    @property
    def cameras(self) -> dict[int, str]:
        """Names of cameras by number, in the order in which they were added to the gallery."""
        return self.gallery.about.names.setdefault("camera", {})

    def counts(self) -> dict[str, int]:
        """Number of ``images``, ``identities`` and ``cameras``; unknown ones do not count."""
        labels = self.gallery.store.labels()
        identities, cameras = (len({*column.tolist()} - {UNKNOWN}) for column in (labels.ids, labels.cams))
        return {"images": len(labels), "identities": identities, "cameras": cameras}

    def images(self) -> list[SearchImage]:
        """All images with their labels, ordered by key."""
        labels = self.gallery.labels()
        rows = zip(labels.paths, labels.ids, labels.cams, labels.times.tolist(), strict=True)
        return [SearchImage(path, name_of(identity), name_of(camera), time) for path, identity, camera, time in rows]

    def number_of(self, what: str, label: int | str) -> int:
        """Return the number of a label, see :meth:`lreid.gallery.Gallery.number_of`. Error messages name the gallery.

        If the gallery has no label ``0003``, the label ``3`` counts instead, because lreid reads identity 3 from a file
        name like ``0003_c1.jpg``.
        """
        names = self.gallery.about.names.get(what, {}).values()
        if isinstance(label, str) and label not in names and re.fullmatch("0+[1-9][0-9]*", label):
            label = label.lstrip("0")
        try:
            return self.gallery.number_of(what, label)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None

    @classmethod
    def build(
        cls,
        where: str | Path | GalleryPlace,
        model: Embedder,
        images: Sequence[SearchImage],
        features: np.ndarray,
        *,
        flip: bool,
        norm: CameraNorm | None,
        **about: Any,
    ) -> NamedGallery:
        """Create and save a gallery of images and their features ``(n, D)``, which are normalised already.

        Args:
            where: place of the gallery, where no gallery may exist.
            model, flip, norm: how the features were computed, see :func:`lreid.gallery.images.origin`.
            about: see :meth:`lreid.Gallery.build`.
        """
        from lreid.models.fingerprint import fingerprint

        extras = origin(model, flip, norm)
        labels = zip(*images, strict=True)
        gallery = Gallery.build(features, *labels, model=fingerprint(model), at=where, extras=extras, **about)
        gallery.save()
        return cls(gallery, str(where), Path(model.source), flip, norm)

    @classmethod
    def load(cls, where: str | Path | GalleryPlace, *, unfinished: bool = False) -> NamedGallery:
        """Open a gallery that :func:`lreid.gallery.build` built.

        Raises:
            InputError: :meth:`lreid.gallery.Gallery.load` raises an error, or the gallery was not built by ``lreid
                search``.
        """
        gallery = Gallery.load(where, unfinished=unfinished)
        extras = gallery.about.extras
        if any(extras.get(name, np.empty(0)).shape != (1,) for name in ("checkpoint", "flip")):
            raise InputError(f"{where}: does not record how its features were computed; build it with lreid search")
        norm = None
        if statistics := {name: array for name, array in extras.items() if name.startswith("norm/")}:
            from lreid.retrieval.camera_norm import CameraNorm

            try:
                norm = CameraNorm.from_arrays(statistics, gallery.width)
            except (KeyError, ValueError):
                norm = None
            if norm is None or any(array.dtype.kind != "f" for array in statistics.values()):
                raise InputError(f"{where}: the statistics of its normalisation are damaged; build it again")
        return cls(gallery, str(where), Path(str(extras["checkpoint"][0])), bool(extras["flip"][0]), norm)

    def lacking(self, images: Sequence[SearchImage]) -> list[SearchImage]:
        """Return the images that are not in the gallery."""
        held = self.gallery.holds([image.path for image in images])
        return [image for image, present in zip(images, held, strict=True) if not present]

    def add(self, model: Embedder, images: Sequence[SearchImage], *, skip_bad: bool = False) -> list[SearchImage]:
        """Add images with their names, save the gallery, and return the images that could be read."""
        from lreid.models.fingerprint import fingerprint

        images, pixels = read_images(images, model, self.gallery.about.names, skip_bad=skip_bad)
        if images:
            self.gallery.add(self.extract(model, pixels), *zip(*images, strict=True), model=fingerprint(model))
            self.gallery.save()
        return images

    def model(self, checkpoint: Path | None, device: str, *, any_model: bool = False) -> Embedder:
        """Load the gallery's model from its original file, or from ``checkpoint`` if given.

        Raises:
            InputError: the file is missing, contains another model (unless ``any_model``), or computes features of
                another length.
        """
        from lreid.loading import load_model
        from lreid.models.fingerprint import fingerprint

        checkpoint = checkpoint or self.checkpoint
        model = load_model(checkpoint, device)
        if not any_model and fingerprint(model) != self.gallery.about.model:
            if getattr(model, "origin", None) == self.gallery.about.model:
                raise InputError(
                    f"{checkpoint}: was exported from the model whose features are in the gallery, but has changed "
                    "since; export it again with lreid export"
                )
            raise InputError(
                f"{checkpoint}: is not the model whose features are in the gallery "
                f"({fingerprint(model)}, not {self.gallery.about.model}); pass that model as --checkpoint, build the "
                "gallery again, or use 'lreid search query --cross-model' if the two models were trained to be "
                "comparable"
            )
        if model.dim != self.gallery.width:
            raise InputError(
                f"{checkpoint}: its features have {model.dim} numbers, but those in the gallery {self.gallery.width}; "
                "they cannot be compared, so build the gallery again with this model"
            )
        return model

    def extract(self, model: Embedder, images: Images) -> np.ndarray:
        """Extract features (n, D) of images, processed like the features in the gallery."""
        return extract_features(model, images, self.flip, self.norm)


def name_of(label: Any) -> str | None:
    """Return a label of a gallery as text, or None if it is unknown."""
    return None if label is None or label == UNKNOWN else str(label)


def extract_features(model: Embedder, images: Images, flip: bool, norm: CameraNorm | None = None) -> np.ndarray:
    """Extract features (n, D) of images, standardised per camera if ``norm`` is given."""
    features = model.extract(images, flip=flip)
    return norm(features, images.camids) if norm else features


def flips(checkpoint: str | Path) -> bool:
    """Whether the config of a checkpoint adds the feature of the mirrored image to each feature (``EVAL.FLIP``)."""
    from lreid.loading import model_config

    return model_config(checkpoint).EVAL.FLIP
