"""Store gallery features of earlier models, so that new queries can search old galleries without recomputation.

Source: C2R (Cui et al., CVPR 2024) and Bi-C2R (TPAMI 2026), who call this setting "re-indexing-free lifelong re-ID".
"""

import zlib
from io import BytesIO
from pathlib import Path

import numpy as np

from lreid.errors import InputError, raise_if_out_of_memory
from lreid.utils.files import write_atomically
from lreid.utils.reading import read_bytes


class GalleryFeatures:
    """Files with gallery features (G, D) float32, one per task and test set, such as ``task-01-test-1.npy``.

    Each file ends with a checksum. Only the owner of a file can read it, because features identify people.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, task: int, test: int, features: np.ndarray) -> None:
        """Write the gallery features (G, D) of a test set after a task; tasks and test sets count from 0."""
        content = BytesIO()
        np.save(content, features)
        write_atomically(
            self._path(task, test), lambda file: file.write(with_checksum(content.getvalue())), private=True
        )

    def read(self, task: int, test: int, shape: tuple[int, ...]) -> np.ndarray:
        """Read features that :meth:`write` stored.

        Raises:
            InputError: the file is missing or damaged, or the features have a different shape.
        """
        path = self._path(task, test)
        try:
            stored = read_bytes(path)
            if with_checksum(stored[:-4]) != stored:
                raise ValueError("its checksum is wrong")
            features = np.load(BytesIO(stored[:-4]), allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            raise_if_out_of_memory(error, path)
            reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise InputError(
                f"{path}: {reason}; every model searches the galleries of earlier tasks: put the file back, or "
                "start again with another --out"
            ) from None
        if features.shape != shape or features.dtype != np.float32:
            raise InputError(f"{path}: holds features of another gallery or network; start again with another --out")
        return features

    def _path(self, task: int, test: int) -> Path:
        return self.folder / f"task-{task + 1:02d}-test-{test + 1}.npy"


def with_checksum(content: bytes) -> bytes:
    """Append a checksum to the content, four bytes of CRC-32."""
    return content + zlib.crc32(content).to_bytes(4, "little")
