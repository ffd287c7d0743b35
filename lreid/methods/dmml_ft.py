"""DMML-FT: fine-tuning with the DMML loss, without protection against forgetting."""

from typing import Annotated, Any, Literal

from torch import Tensor

from lreid.losses._ops import Distance
from lreid.losses.dmml import dmml_loss
from lreid.methods.base import Batch, Embedder, Method, Rule


class DMMLFineTuning(Method):
    """Fine-tuning with the DMML loss, one task after the other (DwoPP, BMVC 2022, Section 3.2).

    Args:
        metric: distance between features: ``sqeuclidean`` (official code), ``euclidean`` (paper), or ``cosine``, the
            negative dot product of unscaled features without margin and clamp, as in the official code.
        mining: supports with which a query is compared. ``hard``: the farthest support of its own class and the nearest
            support of each other class. ``center``: the mean support of each class, without margin and clamp.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        margin: Annotated[float, Rule("margin that is subtracted from distances to other classes", least=0)] = 0.4,
        metric: Annotated[Distance, Rule("distance; sqeuclidean: official code, euclidean: paper")] = "sqeuclidean",
        clamp: Annotated[bool, Rule("raise negative distances after the margin to 0, without gradient")] = True,
        feature_penalty: Annotated[float, Rule("weight of the mean squared norm of the features")] = 5e-4,
        mining: Annotated[Literal["hard", "center"], Rule("compared supports: hardest, or mean of a class")] = "hard",
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.metric = metric
        self.dmml_options: dict[str, Any] = {
            "margin": margin,
            "metric": metric,
            "clamp": clamp,
            "feature_penalty": feature_penalty,
            "mining": mining,
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the DMML loss of the episode."""
        return self.episode_loss(self.model(batch.images), batch)

    def episode_loss(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the DMML loss of features (B, dim)."""
        return {"dmml": dmml_loss(features, batch.labels, batch.num_support, **self.dmml_options)}
