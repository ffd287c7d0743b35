"""Linear classifiers that get one more row of weights for each new identity."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lreid.models.embedder import Embedder
from lreid.models.parts import bn_neck


class GrowingClassifier(nn.Module):
    """A linear classifier without bias, as after BoT's neck; every identity so far has a row of weights.

    Args:
        classes: initial number of identities.
        std: standard deviation of the initial weights of new identities.
    """

    def __init__(self, dim: int, classes: int = 0, *, std: float = 0.001) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.grow(classes)

    def __len__(self) -> int:
        return len(self.weight)

    def grow(self, classes: int) -> None:
        """Add normally distributed weights for ``classes`` new identities; ``weight`` becomes a new parameter."""
        new = torch.randn(classes, self.weight.shape[1]).to(self.weight) * self.std
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new]))

    def cover(self, classes: Iterable[int]) -> None:
        """Add weights for all classes up to the highest given class; existing weights do not change."""
        self.grow(max(0, max(classes) + 1 - len(self)))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Resize the classifier to the number of classes in a state dict, then load the state dict."""
        if (rows := state_dict.get(f"{prefix}weight")) is not None:
            room = self.weight.new_empty(len(rows), self.weight.shape[1])
            self.weight = nn.Parameter(room, requires_grad=self.weight.requires_grad)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, features: Tensor) -> Tensor:
        """Compute logits (B, classes) from features (B, dim)."""
        return nn.functional.linear(features, self.weight)


class ClassifyingEmbedder(nn.Module):
    """An embedder with a BatchNorm neck and a classifier for training; retrieval only uses the embedder.

    Args:
        model: the embedder without a neck; it is not copied.
        classifier: classifier that is applied after the neck; it is not copied.
    """

    def __init__(self, model: Embedder, classifier: GrowingClassifier) -> None:
        super().__init__()
        self.model, self.classifier = model, classifier
        self.neck = bn_neck(model.dim).to(model.mean.device)

    def logits(self, features: Tensor) -> Tensor:
        """Compute logits (B, classes) from features (B, dim)."""
        return self.classifier(self.neck(features))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features (B, dim) and logits (B, classes) of normalised images (B, 3, H, W)."""
        features = self.model(images)
        return features, self.logits(features)


class CosineClassifier(GrowingClassifier):
    """A classifier whose logits are ``scale`` times the cosine between features and class weights.

    Source: the official code of ER-ACE and ER-AML; ``scale`` is 1 / tau in Eq. 2 of their paper. For the cosines, each
    vector ``x`` is divided by ``|x| + 1e-5``. The length of a class weight does not change the logits, but the gradient
    of the class weight is inversely proportional to the length. As in the official code, new class weights therefore
    have the standard deviation of ``torch.nn.Linear``.

    Args:
        classes: initial number of identities.
        scale: factor by which cosines are multiplied, so that logits are in ``[-scale, scale]``.
    """

    def __init__(self, dim: int, classes: int = 0, *, scale: float = 10.0) -> None:
        super().__init__(dim, classes, std=(3 * dim) ** -0.5)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        """Compute logits (B, classes) from features (B, dim)."""
        return self.scale * nn.functional.linear(_normalized(features), _normalized(self.weight))


def _normalized(vectors: Tensor) -> Tensor:
    return vectors / (torch.linalg.vector_norm(vectors, dim=1, keepdim=True) + 1e-5)
