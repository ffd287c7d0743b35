"""Checkpoints that others host, by name: where they are, what they are, and under which terms.

``hosted.yaml`` holds them in families that share an origin. Nothing of theirs comes with lreid: a file is downloaded
when it is first asked for, or placed manually where :func:`published_file` says.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import pooch

from lreid.errors import InputError, OutOfMemory
from lreid.files import write_text
from lreid.reading import parse_yaml, read_text, require_regular
from lreid.zoo.download import Download

logger = logging.getLogger("lreid")

FILE = Path(__file__).with_suffix(".yaml")
IMAGENET_TERMS = "starts from ImageNet, whose terms allow research only; whether weights inherit them is unsettled"


@dataclass(frozen=True)
class Published:
    """A checkpoint that somebody else trained and hosts.

    Attributes:
        name: as in ``zoo:NAME``; the file is kept as ``NAME.pth``.
        family: whose it is.
        about: what it is, for people.
        url, mirrors: addresses of the file.
        backbone, norm, height, width, mean, std, neck: settings of its network, as in :class:`lreid.models.Embedder`.
        feature: what its features are, and how its authors compare them.
        figures: that its authors publish, not measured here; empty where they publish none.
        data: what it was trained on.
        licence: licence of the code that it comes from.
        terms: terms of the training images, which may bind the weights.
        source: page of its authors.
        start_only: a network to start training from, not one to search with.
        imagenet: it was trained on ImageNet, or from weights that were.
        sha256: hash of the file: 64 hexadecimal digits, its first digits, or empty if it is not published.
        bytes: size of the file, 0 where it is unknown.
        remark: what else to know, or empty.
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
    bytes: int = 0
    remark: str = ""
    mirrors: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """The keys of :mod:`lreid.config` that describe its network."""
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
    """All of them by name, in the order of the families."""
    by_name = {}
    for family in parse_yaml(read_text(FILE)):
        entries = family.pop("entries")
        for name, own in entries.items():
            keys = family | own
            for key in ("url", "mirrors"):  # {file} and {id} stand for these keys of the entry
                if key in keys:
                    keys[key] = _filled(keys[key], keys)
            names = {each.name for each in fields(Published)} & keys.keys()
            by_name[name] = Published(name=name, **{key: keys[key] for key in names})
    return by_name


def _filled(address: Any, keys: dict[str, Any]) -> Any:
    return address.format(**keys) if isinstance(address, str) else [each.format(**keys) for each in address]


def published_file(entry: Published, folder: Path, *, download: Download = Download()) -> Path:  # noqa: B008 (frozen)
    """The checked file of a published checkpoint, which is downloaded to ``folder`` where it is not there yet.

    A SHA-256 that is not published in full is recorded in ``FILE.sha256`` at the first use; from then on a file with
    another one is refused.

    Raises:
        InputError: it cannot be downloaded, or is another file than before or than the one that is known.
    """
    file = folder / f"{entry.name}.pth"
    memory = file.with_name(f"{file.name}.sha256")
    expected = read_text(memory).strip() if memory.exists() else entry.sha256
    require_regular(file)
    fresh = not file.exists()
    if fresh:
        addresses = [entry.url, *entry.mirrors]
        if mirror := os.environ.get("LREID_ZOO_MIRROR"):
            addresses.insert(0, f"{mirror.rstrip('/')}/{file.name}")
        download(addresses, file, sha256=expected, size=entry.bytes)
    digest = pooch.file_hash(str(file))
    if not digest.startswith(expected):
        raise InputError(
            f"{file}: is not the file of zoo:{entry.name} (its SHA-256 begins with {digest[:12]}, not "
            f"{expected[:12]}); delete it, or replace it with {entry.url}; if that changed, delete {memory.name} too"
        )
    if len(expected) < 64:
        _remember(entry, file, digest, memory, fresh)
    return file


def _remember(entry: Published, file: Path, digest: str, memory: Path, fresh: bool) -> None:
    """Keeps the SHA-256 of a file that was never seen before, if it holds tensors by name at all."""
    from lreid.zoo.state_dicts import read_state_dict  # torch

    try:
        read_state_dict(file)
    except OutOfMemory:
        raise
    except InputError as error:
        if fresh:
            file.unlink()
        raise InputError(f"{error}; {entry.url} should give zoo:{entry.name}; see {entry.source}") from None
    write_text(memory, f"{digest}\n")
    status = f"published only as far as {entry.sha256}" if entry.sha256 else "not published"
    logger.warning("%s: its SHA-256 is %s; lreid recorded the one of this download: %s", file, status, digest)
