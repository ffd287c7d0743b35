"""FeCAM: features of a frozen network, whitened by one covariance matrix for all classes; no gradient steps."""

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from lreid.losses._ops import class_means
from lreid.methods.base import Embedder, Rule
from lreid.methods.simple_cil import SimpleCIL
from lreid.models.transforms import Whitening


class FeCAM(SimpleCIL):
    """FeCAM (Goswami et al., NeurIPS 2023) with one covariance for all classes, for retrieval.

    Features are raised to a power and scaled to unit length. Let ``C`` be the covariance matrix within classes,
    averaged over all images so far. FeCAM shrinks ``C`` to ``C + a v I + b c (1 - I)``, where ``v`` is the mean
    variance and ``c`` the mean covariance. Let ``C'`` be the correlation matrix of the shrunk covariance matrix. lreid
    multiplies features by ``C'^(-1/2)``, so their Euclidean distance (``EVAL.METRIC euclidean``) is a Mahalanobis
    distance.

    FeCAM's official code computes the covariance before it scales features to unit length. FeCAM's official code does
    not raise features of transformers to a power. lreid always raises the absolute values of features to the power and
    keeps their signs.
    """

    saves: ClassVar = {"scatter": "domain", "count": ""}

    def __init__(
        self,
        model: Embedder,
        *,
        power: Annotated[float, Rule("exponent of Tukey's power transform; 1 means no transform", above=0)] = 0.5,
        shrink_variance: Annotated[float, Rule("weight a of the mean variance", above=0)] = 1.0,
        shrink_covariance: Annotated[float, Rule("weight b of the mean covariance", least=0)] = 1.0,
    ) -> None:
        super().__init__(model)
        self.shrink_variance, self.shrink_covariance = shrink_variance, shrink_covariance
        self.scatter = torch.zeros(model.dim, model.dim, dtype=torch.float64)  # sum over images
        self.count = 0
        self.transform = Whitening(model.dim, power).to(model.mean.device)
        model.neck = self.transform

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Add the within-class scatter of a task's features to the sum over all tasks, and update the whitening."""
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
        """Compute scores (n, classes): negative squared distances of whitened features (n, dim) to class means."""
        return -torch.cdist(features, self.means.to(features) @ self.transform.matrix).square()
