"""FeCAM: frozen features, whitened by one covariance for all classes; no gradient steps."""

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from lreid.losses._ops import class_means
from lreid.methods.simple_cil import SimpleCIL
from lreid.models.embedder import Embedder
from lreid.models.transforms import Whitening
from lreid.rules import Rule


class FeCAM(SimpleCIL):
    """FeCAM (Goswami et al., NeurIPS 2023) with one covariance for all classes, for retrieval.

    Features are raised to a power and scaled to unit length. ``C`` is the covariance within classes, averaged over all
    images so far. ``C`` is shrunk to ``C + a v I + b c (1 - I)``, with the mean variance ``v`` and the mean covariance
    ``c``. ``C'`` is the correlation matrix of the shrunk covariance: each row and column is divided by its standard
    deviation. Features are multiplied by ``C'^(-1/2)``, so the Euclidean distance of features
    (``EVAL.METRIC euclidean``) is a Mahalanobis distance.

    FeCAM's official code computes the covariance before scaling features to unit length, and does not apply the power
    to features of transformers. In lreid, the power is applied to absolute values, and negative features keep their
    sign.
    """

    keeps: ClassVar = {**SimpleCIL.keeps, "scatter": "domain"}
    saves: ClassVar = ["scatter", "count"]

    def __init__(
        self,
        model: Embedder,
        *,
        power: Annotated[
            float, Rule("exponent of Tukey's power transform of the features; 1 means no transform", above=0)
        ] = 0.5,
        shrink_variance: Annotated[
            float, Rule("a: weight of the mean variance in the shrunk covariance", above=0)
        ] = 1.0,
        shrink_covariance: Annotated[
            float, Rule("b: weight of the mean covariance in the shrunk covariance", least=0)
        ] = 1.0,
    ) -> None:
        super().__init__(model)
        self.shrink_variance, self.shrink_covariance = shrink_variance, shrink_covariance
        self.scatter = torch.zeros(model.dim, model.dim, dtype=torch.float64)  # sum over images
        self.count = 0
        self.transform = Whitening(model.dim, power).to(model.mean.device)
        model.neck = self.transform

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Add the within-class scatter of a task, and whiten features with the scatter of all tasks."""
        features = self.transform.expand(features)
        super().learn(features, labels)
        means, classes = class_means(features, labels)
        inner = features - means[torch.searchsorted(classes, labels)]  # (n, dim)
        self.scatter, self.count = self.scatter + inner.T @ inner, self.count + len(features)
        self.transform.matrix.copy_(self.whitening())

    def whitening(self) -> Tensor:
        """Compute ``C'^(-1/2)`` (dim, dim), float64."""
        covariance = self.scatter / self.count
        dim, diagonal = len(covariance), covariance.diagonal()
        others = (covariance.sum() - diagonal.sum()) / max(dim * (dim - 1), 1)
        unit = torch.eye(dim, dtype=torch.float64)
        # 1e-12, so that variances are not 0 even if each class has one image.
        shrunk = covariance + (self.shrink_variance * diagonal.mean() + 1e-12) * unit
        shrunk += self.shrink_covariance * others * (1 - unit)
        deviations = shrunk.diagonal().sqrt()
        values, vectors = torch.linalg.eigh(shrunk / deviations[:, None] / deviations)
        return vectors @ (values.clamp(min=1e-12).rsqrt()[:, None] * vectors.T)

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute negative squared distances (n, classes) between whitened features (n, dim) and class means."""
        return -torch.cdist(features, self.means.to(features) @ self.transform.matrix).square()
