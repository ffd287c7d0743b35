"""Store gallery features of earlier models, so that new queries can search old galleries without recomputation.

Source: C2R (Cui et al., CVPR 2024) and Bi-C2R (TPAMI 2026), who call this setting "re-indexing-free lifelong re-ID".
Old galleries are also mapped to the new model, by a chain of one map per task. Each map is fitted to the training
images of its task only, because a lifelong system has no others when it updates its galleries.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lreid.data.images import Images
from lreid.errors import InputError
from lreid.retrieval.feature_map import FeatureMap
from lreid.utils.files import write_atomically


class GalleryFeatures:
    """Files with gallery features (G, D) float32, one per task and test set, such as ``task-01-test-1.npy``.

    ``task-02-images.npy`` holds features of the training images of a task by the model of the task before, and
    ``task-02-map.npy`` the map between both models. Only the owner of a file can read it, because features identify
    people.

    Args:
        folder: folder of the files.
        images_of: function that reads the training images of a task, given its number from 0; None after the last task.
    """

    def __init__(self, folder: Path, images_of: Callable[[int], Images | None] = lambda task: None) -> None:
        self.folder, self.images_of = folder, images_of

    def write(self, task: int, test: int | str, features: np.ndarray) -> None:
        """Write the gallery features (G, D) of a test set after a task; tasks and test sets count from 0."""
        write_atomically(self._path(task, test), lambda file: np.save(file, features), private=True)

    def fit_map(self, task: int, current: np.ndarray | None, following: np.ndarray | None) -> None:
        """Fit the map from the model of the task before to that of this task.

        Args:
            task: number of the task.
            current: features (n, D) of the images of this task by its model; None for the first task.
            following: features (m, D) of the images of the following task by the same model; None after the last task.
        """
        if current is not None:
            self.write(task, "map", FeatureMap.fit(self.read(task, "images", current.shape), current).weights)
        if following is not None:
            self.write(task + 1, "images", following)

    def mapped(self, features: np.ndarray, task: int, now: int) -> np.ndarray:
        """Map gallery features (G, D) of the model of a task to the model of the task ``now``, one task at a time."""
        width = features.shape[1]
        for each in range(task + 1, now + 1):
            features = FeatureMap(self.read(each, "map", (width + 1, width)))(features)
        return features

    def read(self, task: int, test: int | str, shape: tuple[int, ...]) -> np.ndarray:
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

    def _path(self, task: int, test: int | str) -> Path:
        return self.folder / f"task-{task + 1:02d}-{test if isinstance(test, str) else f'test-{test + 1}'}.npy"
