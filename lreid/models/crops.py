"""Use a model as the embedder of a tracker that passes crops of people."""

from collections.abc import Sequence

import numpy as np

from lreid.models.embedder import Embedder


class CropEmbedder:
    """An embedder for deep-sort-realtime: ``tracker.embedder = CropEmbedder(lreid.load_model("mine.onnx"))``.

    Args:
        model: the model that extracts the features of crops.
        bgr: whether the channels of the crops have the order blue, green, red, as in OpenCV.
    """

    def __init__(self, model: Embedder, *, bgr: bool = True) -> None:
        self.model, self.bgr = model, bgr

    def predict(self, crops: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Extract the features (dim,) float32 of each crop; crops have any size and are (H, W, 3) or (H, W) uint8.

        Raises:
            InputError: a crop has an unsupported shape or type, or no pixels; the message gives the position of the
                crop.
        """
        images = [crop[..., ::-1] if self.bgr and crop.ndim == 3 else crop for crop in map(np.asarray, crops)]
        return list(self.model.extract(images)) if images else []
