"""The divergence of teachers in half precision."""

from __future__ import annotations

import pytest
import torch

from lreid.evaluation.divergence import teacher_divergence
from lreid.models import Embedder, frozen_copy
from lreid.models.precision import set_precision

IMAGES = torch.randn(8, 3, 32, 16, generator=torch.Generator().manual_seed(0))


def embedder(teacher: str) -> Embedder:
    torch.manual_seed(1)
    model = Embedder("small", height=32, width=16)
    set_precision(model, "fp32", teacher)
    return model


def test_it_is_the_mean_kl_divergence() -> None:
    """Against the definition, in a loop over images."""
    teacher = frozen_copy(embedder("bf16"))
    with torch.no_grad():
        reduced = teacher(IMAGES).double()
        teacher.precision = None
        exact = teacher(IMAGES).double()
    teacher.precision = torch.bfloat16
    expected = 0.0
    for row in range(len(IMAGES)):
        others = [other for other in range(len(IMAGES)) if other != row]
        p, q = (
            torch.stack([-(each[row] - each[other]).square().sum() for other in others]).softmax(0)
            for each in (exact, reduced)
        )
        expected += (p * (p / q).log()).sum().item() / len(IMAGES)
    assert teacher_divergence(teacher, IMAGES) == pytest.approx(expected, rel=1e-6)
    assert teacher.precision == torch.bfloat16
    assert teacher_divergence(frozen_copy(embedder("fp32")), IMAGES) == pytest.approx(0, abs=1e-12)
