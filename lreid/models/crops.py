"""Use a model as the embedder of a tracker that works on crops."""

from collections.abc import Sequence

import numpy as np

from lreid.models.embedder import Embedder


class CropEmbedder:
    """An embedder for deep-sort-realtime: ``tracker.embedder = CropEmbedder(lreid.load_model("mine.onnx"))``.

    Args:
        model: the model that extracts the features of crops.
        bgr: whether the channels of crops are blue, green, red, as in OpenCV.
    """

    def __init__(self, model: Embedder, *, bgr: bool = True) -> None:
        self.model, self.bgr = model, bgr

    def predict(self, crops: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Extract features (dim,) float32 of each crop, (H, W, 3) uint8 or grey (H, W), of any size.

        Raises:
            InputError: a crop has a different form or no pixels; the message names its position.
        """
        images = [crop[..., ::-1] if self.bgr and crop.ndim == 3 else crop for crop in map(np.asarray, crops)]
        return list(self.model.extract(images)) if images else []
