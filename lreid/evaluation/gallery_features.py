"""Store gallery features of earlier models, so that new queries can search old galleries without recomputation.

Source: C2R (Cui et al., CVPR 2024) and Bi-C2R (TPAMI 2026), who call this setting "re-indexing-free lifelong re-ID".
"""

from pathlib import Path

import numpy as np

from lreid.errors import InputError
from lreid.utils.files import write_atomically


class GalleryFeatures:
    """Files with gallery features (G, D) float32, one per task and test set, such as ``task-01-test-1.npy``.

    Only the owner of a file can read it, because features identify people.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, task: int, test: int, features: np.ndarray) -> None:
        """Write the gallery features (G, D) of a test set after a task; tasks and test sets count from 0."""
        write_atomically(self._path(task, test), lambda file: np.save(file, features), private=True)

    def read(self, task: int, test: int, shape: tuple[int, ...]) -> np.ndarray:
        """Read features that :meth:`write` stored.

        Raises:
            InputError: the file is missing or damaged, or the features have a different shape.
        """
        path = self._path(task, test)
        try:
            features = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
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
