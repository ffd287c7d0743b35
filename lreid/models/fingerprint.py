"""Fingerprints of networks: they prevent comparing features of different networks."""

import hashlib

from torch import Tensor

from lreid.models.embedder import Embedder


def fingerprint(model: Embedder) -> str:
    """Sixteen hexadecimal digits that change with anything that changes the features.

    The digits are a hash of the backbone's name, the input's size and normalisation, and all bits of every weight and
    statistic. Pooling, norm and scale are hashed, too, if they are not the defaults.

    Device, training mode and batch counters do not matter. An exported network has the same fingerprint as its
    original, unless its file was changed later (:class:`~lreid.models.exported.OnnxEmbedder`).
    """
    if (of_file := getattr(model, "fingerprint", None)) is not None:
        return of_file
    # Defaults add nothing, so that fingerprints from before these options existed stay valid.
    pooling = "" if model.pooling == "avg" else f" {model.pooling}"
    norm = "" if model.norm == "batch" else f" {model.norm}"
    scale = "" if model.scale == 1 else f" {model.scale}"
    digest = hashlib.sha256(f"{model.name} {model.height}x{model.width}{pooling}{norm}{scale}".encode())

    def add(name: str, tensor: Tensor) -> None:
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())

    add("mean", model.mean)
    add("std", model.std)
    for name, tensor in sorted(model.state_dict().items()):
        if not name.endswith("num_batches_tracked"):
            add(name, tensor)
    return digest.hexdigest()[:16]
