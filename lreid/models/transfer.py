"""Bi-C2R's map from the features of an old model to those of a new one, so that a gallery needs no images again."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lreid.models.eval_mode import evaluating

HIDDEN, PATHS, CAPTURED = 32, 4, 16


class _Block(nn.Module):
    """``x + w0(x) P(x) + w1(x) A(x)``: narrow paths, and a weighted sum of learned vectors."""

    def __init__(self, dim: int, *, identity: bool) -> None:
        super().__init__()
        self.paths = nn.ModuleList(_path(dim, identity=identity) for _ in range(PATHS))
        self.captured = nn.Parameter(torch.zeros(CAPTURED, dim))
        self.attention, self.weights = _chain(dim, CAPTURED), _chain(dim, 2)

    def forward(self, features: Tensor) -> Tensor:
        sums = torch.stack([path(features) for path in self.paths]).sum(0)  # (B, dim)
        captured = self.attention(features).softmax(1) @ self.captured  # (B, dim)
        weights = self.weights(features).softmax(1)  # (B, 2)
        return features + weights[:, :1] * sums + weights[:, 1:] * captured


def _path(dim: int, *, identity: bool) -> nn.Sequential:
    def norm(width: int) -> nn.BatchNorm1d:
        return nn.BatchNorm1d(width, eps=2e-5, momentum=0.9)

    last = norm(dim)
    if identity:
        nn.init.zeros_(last.weight)
    return nn.Sequential(
        *(nn.Linear(dim, HIDDEN, bias=False), norm(HIDDEN), nn.PReLU(HIDDEN)),
        *(nn.Linear(HIDDEN, HIDDEN, bias=False), norm(HIDDEN), nn.PReLU(HIDDEN)),
        *(nn.Linear(HIDDEN, dim, bias=False), last, nn.PReLU(dim)),
    )


def _chain(dim: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, dim // 2), nn.Linear(dim // 2, dim // 4), nn.Linear(dim // 4, out))


class FeatureTransfer(nn.Module):
    """A map from feature to feature, of two blocks; 11,683,364 parameters at 2048 dimensions.

    Source: the transfer network of Bi-C2R (TPAMI 2026), official code. There it begins far from the identity, at a
    cosine of about 0.55 to what it is given; here the last norms begin at 0, so that it begins as the identity, which
    is a strong map between networks that were averaged.

    Args:
        dim: width of the features, 4 or more.
        identity: begin as the identity; without it as the official code.
    """

    def __init__(self, dim: int, *, identity: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.blocks = nn.Sequential(*(_Block(dim, identity=identity) for _ in range(2)))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Mapped features of unit length (B, dim), of features (B, dim)."""
        return F.normalize(self.blocks(F.normalize(features, dim=1)), dim=1)

    @torch.inference_mode()
    def migrated(self, features: np.ndarray, *, share: float = 1.0) -> np.ndarray:
        """Features of a gallery in the space of the new model, in evaluation mode.

        Args:
            features: (G, dim) float32.
            share: of the mapped feature in the sum with the old one, both of unit length; Bi-C2R takes the weight of
                the new network in the average of networks.

        Returns:
            (G, dim) float32 of unit length; the official code leaves the sum as it is.
        """
        device = next(self.parameters()).device
        old = F.normalize(torch.from_numpy(np.asarray(features, np.float32)).to(device), dim=1)
        with evaluating(self):
            mapped = torch.cat([self(part) for part in old.split(4096)]) if len(old) else old
        return F.normalize(share * mapped + (1 - share) * old, dim=1).cpu().numpy()
