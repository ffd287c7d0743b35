"""The neck between features and a classifier."""

from __future__ import annotations

from torch import nn


def bn_neck(dim: int) -> nn.BatchNorm1d:
    """BatchNorm of features (B, dim) whose shift stays 0, so that they lie around the origin of a linear classifier.

    Source: BNNeck of BoT (Luo et al., CVPRW 2019), as in its official code.
    """
    neck = nn.BatchNorm1d(dim)
    neck.bias.requires_grad_(False)
    return neck
