"""Training augmentation, built on albumentations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no look at the network on import
import albumentations as A  # noqa: E402


class RandomErasing(A.ImageOnlyTransform):
    """Sets a random rectangle of a normalised image to 0, more and more of it as a task goes on.

    The schedule is that of DMML's official code: with ``p = min(progress, 0.8)`` an image is hit with probability
    ``0.3 + 0.4 p``, and the rectangle covers ``0.1 + 0.3 p`` of it, with an aspect ratio (height to width)
    uniform in [0.3, 1/0.3]. Albumentations' own ``Erasing`` caps or fails on such areas (2.0.8).
    """

    ATTEMPTS = 100  # a tall rectangle may not fit into the image; then another ratio is tried

    def __init__(self) -> None:
        super().__init__(p=1.0)
        self.progress = 0.0

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        height, width = params["shape"][:2]
        progress = min(self.progress, 0.8)
        if self.py_random.random() >= 0.3 + 0.4 * progress:
            return {"box": None}
        area = (0.1 + 0.3 * progress) * height * width
        for _ in range(self.ATTEMPTS):
            aspect = self.py_random.uniform(0.3, 1 / 0.3)
            h, w = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if h < height and w < width:
                top, left = self.py_random.randint(0, height - h), self.py_random.randint(0, width - w)
                return {"box": (top, left, top + h, left + w)}
        return {"box": None}

    def apply(self, img: np.ndarray, box: tuple[int, int, int, int] | None, **_: Any) -> np.ndarray:
        if box is None:
            return img
        top, left, bottom, right = box
        img = img.copy()
        img[top:bottom, left:right] = 0
        return img


class Augment:
    """Mirrors, normalises and erases images of the input size.

    Args:
        flip: probability of a horizontal flip.
        erasing: whether to erase rectangles (:class:`RandomErasing`).
        mean, std: of RGB values in [0, 1], three each.
    """

    def __init__(self, *, flip: float, erasing: bool, mean: Sequence[float], std: Sequence[float]) -> None:
        self.erasing = RandomErasing() if erasing else None
        steps = [A.HorizontalFlip(p=flip), A.Normalize(mean=mean, std=std), self.erasing]
        self.compose = A.Compose([step for step in steps if step is not None])

    def __call__(self, images: Sequence[np.ndarray], *, seed: int, progress: float) -> np.ndarray:
        """A batch for training.

        Args:
            images: n uint8 RGB images (H, W, 3).
            seed: decides the whole batch.
            progress: share of the task's epochs that is done, in [0, 1].

        Returns:
            (n, 3, H, W) float32.
        """
        self.compose.set_random_seed(seed)
        if self.erasing is not None:
            self.erasing.progress = progress
        batch = np.stack([self.compose(image=image)["image"] for image in images])  # (n, H, W, 3)
        return batch.transpose(0, 3, 1, 2)  # a view: channels last in memory, which convolutions like
