"""Fingerprints of networks, with which lreid refuses to compare features of different networks."""

import hashlib

from torch import Tensor, nn

from lreid.errors import require
from lreid.models.embedder import Embedder


def fingerprint(model: Embedder) -> str:
    """Compute a fingerprint of 16 hexadecimal digits, which differs for networks that compute different features.

    The fingerprint is a hash of the backbone's name, the size and normalisation of input images, and all weights and
    statistics, bit by bit. Pooling, norm and scale are part of the hash if they are not the defaults.

    The fingerprint does not depend on the device, the training mode or BatchNorm's counters of batches. An exported
    network has the same fingerprint as the original network, unless the file was changed after the export
    (:class:`~lreid.models.exported.OnnxEmbedder`).
    """
    require(isinstance(model, nn.Module), "model", model, "a model, such as lreid.load_model('zoo:people')")
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
