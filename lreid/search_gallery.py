"""A gallery as ``tools/search.py`` keeps it: with names, and with the model and the way its features were made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lreid.config import config_from_text
from lreid.data.images import Images
from lreid.errors import InputError
from lreid.models import Embedder
from lreid.models.adapt import AdaptedNorm
from lreid.models.fingerprint import fingerprint
from lreid.retrieval import Gallery
from lreid.training.checkpoint import load_checkpoint
from lreid.loading import load_model
from lreid.training.run import pick_device

NOBODY = -1  # an identity or a camera that is not known


@dataclass
class NamedGallery:
    """A gallery whose identities and cameras have names, and that knows its model.

    Attributes:
        gallery: the images as features; ids and cameras are places in the lists below.
        identities, cameras: names, in the order in which they came.
        checkpoint: of the model that the gallery was built with.
        flip: the features of mirrored images are added, as ``EVAL.FLIP`` of the checkpoint has it.
        norm: BatchNorm statistics that its images were extracted with, and queries must be too; or None.
    """

    gallery: Gallery
    identities: list[str]
    cameras: list[str]
    checkpoint: Path
    flip: bool
    norm: AdaptedNorm | None

    @classmethod
    def load(cls, file: Path) -> NamedGallery:
        """Reads the file that :meth:`save` wrote.

        Raises:
            InputError: it is missing, cut short, of another version, or not made by :func:`lreid.search.build`.
        """
        gallery = Gallery.load(file)
        extras = gallery.extras
        if not {"identities", "cameras", "checkpoint", "flip"} <= extras.keys():
            raise InputError(
                f"{file}: a gallery without the names of its identities; build it with tools/search.py"
            )
        names = (extras[key].tolist() for key in ("identities", "cameras"))
        checkpoint, flip = Path(str(extras["checkpoint"][0])), bool(extras["flip"][0])
        return cls(gallery, *names, checkpoint, flip, AdaptedNorm.from_arrays(extras))

    def save(self, file: Path) -> None:
        """Writes the gallery to one file; what was there is replaced when the new file is complete."""
        self.gallery.extras = {
            "identities": np.array(self.identities, dtype=str),
            "cameras": np.array(self.cameras, dtype=str),
            "checkpoint": np.array([str(self.checkpoint)]),
            "flip": np.array([self.flip]),
            **(self.norm.to_arrays() if self.norm else {}),
        }
        self.gallery.save(file)

    def model(self, checkpoint: Path | None, device: str, *, any_model: bool = False) -> Embedder:
        """The gallery's model, from where it was when the gallery was built, or from another file.

        Raises:
            InputError: no such file, another model, unless ``any_model``, or one whose features have another length.
        """
        checkpoint = checkpoint or self.checkpoint
        model = load_model(checkpoint)
        if not any_model and fingerprint(model) != self.gallery.model:
            raise InputError(
                f"{checkpoint}: is not the model whose features are in the gallery "
                f"({fingerprint(model)}, not {self.gallery.model}); give that one by --checkpoint, build the gallery "
                "again, or query with --cross-model if the two were trained to be comparable"
            )
        if model.dim != self.gallery.index.d:
            raise InputError(
                f"{checkpoint}: its features have {model.dim} numbers, those in the gallery {self.gallery.index.d}; "
                "they cannot be compared, so build the gallery again with this model"
            )
        return model.to(pick_device(device))

    def extract(self, model: Embedder, images: Images) -> np.ndarray:
        """Features (n, D) in the way of the gallery."""
        return extract(model, images, self.flip, self.norm)


def extract(model: Embedder, images: Images, flip: bool, norm: AdaptedNorm | None = None) -> np.ndarray:
    """Features (n, D), with the statistics of each image's camera where there are adapted ones."""
    return norm.extract(model, images, images.camids, flip=flip) if norm else model.extract(images, flip=flip)


def flips(checkpoint: Path) -> bool:
    """Whether a checkpoint's config adds the features of mirrored images (``EVAL.FLIP``)."""
    return config_from_text(load_checkpoint(checkpoint)["config"], str(checkpoint)).EVAL.FLIP
