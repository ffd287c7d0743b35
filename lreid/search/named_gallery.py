"""Keep a gallery with the names of its identities and cameras, its model and the way its features were made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lreid.data.images import Images
from lreid.devices import pick_device
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.gallery.store import Place
from lreid.loading import lasting_name, load_model, model_config
from lreid.models import Embedder
from lreid.models.adapt import AdaptedNorm
from lreid.models.exported import OnnxEmbedder
from lreid.models.fingerprint import fingerprint
from lreid.retrieval import CameraNorm

Norm = AdaptedNorm | CameraNorm


@dataclass
class NamedGallery:
    """A gallery whose identities and cameras have names, and that knows its model.

    Attributes:
        gallery: the images as features.
        where: it is, see :func:`lreid.gallery.places.place_of`; messages begin with it.
        checkpoint: of the model that the gallery was built with.
        flip: the features of flipped images are added, as ``EVAL.FLIP`` of the checkpoint has it.
        norm: statistics of its images that their features were normalised by, as those of queries must be; or None.
    """

    gallery: Gallery
    where: str
    checkpoint: Path
    flip: bool
    norm: Norm | None

    @property
    def identities(self) -> dict[int, str]:
        """Names by number, in the order in which they came."""
        return self.gallery.about.names.setdefault("identity", {})

    @property
    def cameras(self) -> dict[int, str]:
        """Names by number, in the order in which they came."""
        return self.gallery.about.names.setdefault("camera", {})

    def number_of(self, what: str, label: int | str) -> int:
        """That of :meth:`lreid.gallery.Gallery.number_of`; errors say of which gallery.

        Where ``0003`` is no name, ``3`` is meant, as files named ``0003_c1.jpg`` are called.
        """
        known = self.gallery.about.names.get(what, {}).values()
        if isinstance(label, str) and label not in known and re.fullmatch("0+[1-9][0-9]*", label):
            label = label.lstrip("0")
        try:
            return self.gallery.number_of(what, label)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None

    def keep_identities(self, numbers: np.ndarray) -> None:
        """Forgets the names of all identities but these."""
        there = set(numbers.tolist())
        self.gallery.about.names["identity"] = {
            number: name for number, name in self.identities.items() if number in there
        }

    @classmethod
    def load(cls, where: str | Path | Place, *, unfinished: bool = False) -> NamedGallery:
        """Opens a gallery that was made by :func:`lreid.search.build`.

        Raises:
            InputError: as :meth:`lreid.gallery.Gallery.load`, or it was made otherwise.
        """
        gallery = Gallery.load(where, unfinished=unfinished)
        extras = gallery.about.extras
        if any(extras.get(name, np.empty(0)).shape != (1,) for name in ("checkpoint", "flip")):
            raise InputError(f"{where}: does not say how its features were made; build it with lreid search")
        checkpoint, flip = Path(str(extras["checkpoint"][0])), bool(extras["flip"][0])
        statistics = {name: array for name, array in extras.items() if name.startswith("norm/")}
        try:
            if any(array.dtype.kind != "f" for array in statistics.values()):
                raise ValueError("not numbers")
            norm = CameraNorm.from_arrays(statistics, gallery.width) or AdaptedNorm.from_arrays(statistics)
        except (KeyError, ValueError):
            raise InputError(f"{where}: the statistics of its normalisation are damaged; build it again") from None
        return cls(gallery, str(where), checkpoint, flip, norm)

    @staticmethod
    def extras(checkpoint: Path, flip: bool, norm: Norm | None) -> dict[str, np.ndarray]:
        """What travels with a gallery for :meth:`load`."""
        kept = {"checkpoint": np.array([lasting_name(checkpoint)]), "flip": np.array([flip])}
        return kept | (norm.to_arrays() if norm else {})

    def model(self, checkpoint: Path | None, device: str, *, any_model: bool = False) -> Embedder:
        """The gallery's model, from where it was when the gallery was built, or from another file.

        Raises:
            InputError: no such file, another model, unless ``any_model``, or one whose features have another length.
        """
        checkpoint = checkpoint or self.checkpoint
        model = load_model(checkpoint)
        if not any_model and fingerprint(model) != self.gallery.about.model:
            if isinstance(model, OnnxEmbedder) and model.origin == self.gallery.about.model:
                raise InputError(
                    f"{checkpoint}: says that it was made of the model whose features are in the gallery, but was "
                    "changed since, or exported before such files were sealed; export it again with lreid export"
                )
            raise InputError(
                f"{checkpoint}: is not the model whose features are in the gallery "
                f"({fingerprint(model)}, not {self.gallery.about.model}); give that one by --checkpoint, build the "
                "gallery again, or use 'lreid search query --cross-model' if the two were trained to be comparable"
            )
        if model.dim != self.gallery.width:
            raise InputError(
                f"{checkpoint}: its features have {model.dim} numbers, those in the gallery {self.gallery.width}; "
                "they cannot be compared, so build the gallery again with this model"
            )
        return model.to(pick_device(device))

    def extract(self, model: Embedder, images: Images) -> np.ndarray:
        """Features (n, D) in the way of the gallery."""
        return extract(model, images, self.flip, self.norm)


def extract(model: Embedder, images: Images, flip: bool, norm: Norm | None = None) -> np.ndarray:
    """Features (n, D), with the statistics of each image's camera where there are adapted ones."""
    if isinstance(norm, AdaptedNorm):
        return norm.extract(model, images, images.camids, flip=flip)
    features = model.extract(images, flip=flip)
    return norm(features, images.camids) if norm else features


def flips(checkpoint: Path) -> bool:
    """Whether a checkpoint's config adds the features of flipped images (``EVAL.FLIP``)."""
    return model_config(checkpoint).EVAL.FLIP
