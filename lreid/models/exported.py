"""A network out of an ``.onnx`` file, which extracts features without its weights in torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lreid.errors import InputError
from lreid.files import misfit
from lreid.models.embedder import Embedder

RAW, NORMALISED = "uint8 (n, H, W, 3)", "normalised float32 (n, 3, H, W)"  # what a file can take
PREPARATION = {"height": int, "width": int, "mean": [(int, float)], "std": [(int, float)]}  # of images


class OnnxEmbedder(Embedder):
    """What :func:`lreid.apps.export.export` wrote, run by onnxruntime on the CPU; it can be asked but not trained.

    :meth:`extract` gives the features of the network that was exported, to the rounding of float32. A file with the
    normalisation inside takes no images that are normalised already.

    Args:
        file: the path of an ONNX file, or its content.

    Attributes:
        fingerprint: that of the exported network, so that a gallery of the one can be searched with the other.
        config: of the run that trained it, YAML; empty where it is not known.

    Raises:
        InputError: there is no such file, it is damaged, or it was not written by lreid.
    """

    def __init__(self, file: str | Path | bytes) -> None:
        nn.Module.__init__(self)  # Embedder would build a backbone
        self.file = "ONNX" if isinstance(file, bytes) else str(file)
        self.session = _session(file, self.file)
        known = self.session.get_modelmeta().custom_metadata_map
        try:
            self.name, self.fingerprint, self.takes = (known[key] for key in ("backbone", "fingerprint", "images"))
            prepared = {key: json.loads(known[key]) for key in PREPARATION}
            if fault := misfit(prepared, PREPARATION):
                raise ValueError(fault)
            mean, std = (255 * torch.tensor(prepared[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
        except (KeyError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{self.file}: not written by lreid, its properties do not tell how images are prepared ({error}); "
                "make one with tools/export.py"
            ) from None
        self.height, self.width = prepared["height"], prepared["width"]
        self.config = known.get("config", "")
        self.dim = self.session.get_outputs()[0].shape[1]
        self.precision, self.neck = None, nn.Identity()  # the neck is in the file
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxEmbedder:
        return self  # nothing in it ever changes, and a session cannot be copied

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, dim), on the CPU, of images as the file takes them."""
        size = (self.height, self.width, 3) if self.takes == RAW else (3, self.height, self.width)
        if images.shape[1:] != size or images.is_floating_point() == (self.takes == RAW):
            raise InputError(
                f"{self.file}: takes {self.takes} images with H = {self.height} and W = {self.width}, got "
                f"{images.dtype} {tuple(images.shape)}; tools/export.py --normalise makes files for either kind"
            )
        return torch.from_numpy(self.session.run(None, {"images": images.cpu().numpy()})[0])  # (B, dim)

    def _features(self, images: Sequence[str | Path | np.ndarray] | np.ndarray | Tensor, flip: bool) -> Tensor:
        if not (isinstance(images, Tensor) and images.is_floating_point()):
            images = self._decoded(images)  # (B, H, W, 3)
            if self.takes == NORMALISED:
                images = self.normalise(images)  # (B, 3, H, W)
        features = self(images)  # (B, dim)
        return features + self(images.flip(2 if self.takes == RAW else 3)) if flip else features


def _session(file: str | Path | bytes, name: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(f"{name}: needs onnxruntime ({error}); install it with: pip install onnxruntime") from None
    if not isinstance(file, bytes) and not Path(file).is_file():
        raise InputError(f"{name}: no such file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; they are raised anyway
    source = file if isinstance(file, bytes) else str(file)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no base
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{name}: cannot be read as ONNX: damaged or of another kind ({reason})") from None
