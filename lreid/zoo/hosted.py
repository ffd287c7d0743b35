"""Find third-party checkpoints by name, with their addresses, settings and terms.

``hosted.yaml`` lists third-party checkpoints by origin. lreid does not contain the files but downloads a file when it
is first used. Users can also copy the file to the path that :func:`published_file` reads.
"""

import logging
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pooch

from lreid.errors import InputError, OutOfMemory
from lreid.utils.files import write_text
from lreid.utils.reading import parse_yaml, read_text
from lreid.zoo.download import cache_folder, download

logger = logging.getLogger("lreid")

FILE = Path(__file__).with_suffix(".yaml")
IMAGENET_TERMS = (
    "trained from ImageNet weights; ImageNet's terms allow research only, and it is legally unclear whether these "
    "terms also apply to weights"
)


@dataclass(frozen=True)
class Published:
    """A checkpoint that a third party trained and hosts.

    Attributes:
        name: name as in ``zoo:NAME``; the file is stored as ``NAME.pth``.
        family: origin of the checkpoint, such as ``ImageNet: timm``; several checkpoints have the same origin.
        about: short description.
        url, mirrors: addresses of the file.
        backbone, norm, height, width, mean, std, neck: settings of the network, as in :class:`lreid.models.Embedder`.
        feature: description of the features, and of the authors' way to compare them.
        figures: figures that the authors published and lreid did not measure; empty if there are none.
        data: training data.
        licence: licence of the authors' code.
        terms: terms of the training images, which may also apply to the weights.
        source: page of the authors.
        start_only: whether the checkpoint is only for initial weights and not for search.
        imagenet: whether the training used ImageNet, or started from ImageNet weights.
        sha256: hash of the file: 64 hexadecimal digits, its first digits, or empty if it is not published.
        remark: additional note, or empty.
    """

    name: str
    family: str
    about: str
    url: str
    backbone: str
    feature: str
    data: str
    licence: str
    source: str
    norm: str = "batch"
    height: int = 256
    width: int = 128
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    neck: bool = False
    figures: str = ""
    terms: str = ""
    start_only: bool = False
    imagenet: bool = True
    sha256: str = ""
    remark: str = ""
    mirrors: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """Config keys that describe the network of the checkpoint."""
        return {
            "MODEL.BACKBONE": self.backbone,
            "MODEL.NORM": self.norm,
            "INPUT.HEIGHT": self.height,
            "INPUT.WIDTH": self.width,
            "INPUT.MEAN": list(self.mean),
            "INPUT.STD": list(self.std),
        }


@cache
def published() -> dict[str, Published]:
    """Return all third-party checkpoints by name, ordered by origin."""
    by_name = {}
    for family in parse_yaml(read_text(FILE)):
        entries = family.pop("entries")
        for name, own in entries.items():
            keys = family | own
            parts = {key: keys.pop(key, "") for key in ("file", "id")}  # {file} and {id} in the addresses
            keys["url"] = keys["url"].format(**parts)
            keys["mirrors"] = [each.format(**parts) for each in keys.get("mirrors", [])]
            by_name[name] = Published(name=name, **keys)
    return by_name


def published_file(entry: Published) -> Path:
    """Return the verified file of a third-party checkpoint, after downloading it to the cache folder if needed.

    If the authors did not publish the full SHA-256, lreid records it in ``FILE.sha256`` when the file is first used.
    Once the hash is recorded, lreid refuses a file with another SHA-256.

    Raises:
        InputError: the file cannot be downloaded or is not the expected file.
    """
    file = cache_folder() / f"{entry.name}.pth"
    memory = file.with_name(f"{file.name}.sha256")
    expected = read_text(memory).strip() if memory.exists() else entry.sha256
    fresh = not file.exists()
    if fresh:
        download(file.name, [entry.url, *entry.mirrors], sha256=expected)
    digest = pooch.file_hash(str(file))
    if not digest.startswith(expected):
        raise InputError(
            f"{file}: is not the file of zoo:{entry.name} (its SHA-256 begins with {digest[:12]}, not "
            f"{expected[:12]}); delete it, or replace it with {entry.url}; if that changed, delete {memory.name}, too"
        )
    if len(expected) < 64:
        _remember(entry, file, digest, memory, fresh)
    return file


def _remember(entry: Published, file: Path, digest: str, memory: Path, fresh: bool) -> None:
    """Record the SHA-256 of a file when it is first used, if the file contains named tensors."""
    from lreid.models.state_dicts import read_state_dict  # torch

    try:
        read_state_dict(file)
    except OutOfMemory:
        raise
    except InputError as error:
        if fresh:
            file.unlink()
        raise InputError(f"{error}; {entry.url} should return zoo:{entry.name}; see {entry.source}") from None
    write_text(memory, f"{digest}\n")
    status = f"published only up to {entry.sha256}" if entry.sha256 else "not published"
    logger.warning("%s: its SHA-256 is %s; lreid recorded the SHA-256 of this download: %s", file, status, digest)
