"""The last change of a gallery, which can be undone until the next change."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lreid.gallery.store import GalleryRows


@dataclass
class Change:
    """Images that a change added, removed or renamed.

    Attributes:
        action: ``add``, ``remove`` or ``rename``.
        labels: names, identities, cameras and times of the images, as arguments of :meth:`lreid.Gallery.add`; of
            renamed images, those before the change.
        features: ``(n, D)`` float32 of removed images, otherwise ``(0, D)``.
        files: contents of removed images that were uploaded to ``lreid serve``, by file name.
        name: name of the change.
    """

    action: str
    labels: list[list[Any]]
    features: np.ndarray
    files: dict[str, bytes] = field(default_factory=dict)
    name: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(cls, action: str, rows: GalleryRows, features: np.ndarray, files: dict[str, bytes]) -> Change:
        """Describe a change of rows that have names as labels."""
        labels = [column.tolist() for column in (rows.paths, rows.ids, rows.cams, rows.times)]
        return cls(action, labels, features, files)

    @classmethod
    def read(cls, arrays: dict[str, np.ndarray]) -> Change | None:
        """Read the change of a gallery from arrays, None if they have none."""
        if "change" not in arrays:
            return None
        values = json.loads(arrays["change"].tobytes())
        files = {path: base64.b64decode(content) for path, content in values.pop("files").items()}
        return cls(**values, files=files, features=arrays["change_features"])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays from which :meth:`read` restores the change."""
        values: dict[str, Any] = {"action": self.action, "labels": self.labels, "name": self.name}
        values["files"] = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        text = json.dumps(values).encode()
        return {"change": np.frombuffer(text, dtype=np.uint8), "change_features": self.features}
