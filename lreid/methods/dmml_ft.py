"""DMML-FT: fine-tuning with the DMML loss, nothing done against forgetting."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from lreid.data.loaders import Batch
from lreid.errors import require
from lreid.losses._ops import Metric
from lreid.losses.dmml import dmml_loss
from lreid.methods.base import Method
from lreid.models.embedder import Embedder

METRICS = ("sqeuclidean", "euclidean", "cosine")
MININGS = ("hard", "center")


class DMMLFineTuning(Method):
    """Each task starts from the weights that the one before left (DwoPP, BMVC 2022, Section 3.2).

    Args:
        model: the network.
        margin, metric, clamp, feature_penalty, mining: of :func:`lreid.losses.dmml_loss`.
        options: of :class:`Method`.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        margin: float = 0.4,
        metric: Metric = "sqeuclidean",
        clamp: bool = True,
        feature_penalty: float = 5e-4,
        mining: Literal["hard", "center"] = "hard",
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        require(metric in METRICS, "metric", metric, f"one of {', '.join(METRICS)}")
        require(mining in MININGS, "mining", mining, f"one of {', '.join(MININGS)}")
        self.metric = metric
        self.dmml_options: dict[str, Any] = {
            "margin": margin,
            "metric": metric,
            "clamp": clamp,
            "feature_penalty": feature_penalty,
            "mining": mining,
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """DMML on the episode, and nothing against forgetting."""
        return self.episode_loss(self.model(batch.images), batch)

    def episode_loss(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The DMML term of features (B, dim)."""
        return {"dmml": dmml_loss(features, batch.labels, batch.num_support, **self.dmml_options)}
