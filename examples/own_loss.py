"""Define your own loss: a function, a check of its gradient, and training steps with it.

    python examples/own_loss.py

lreid.losses needs only torch, so it works in any training loop.
"""

import torch
from torch import Tensor

from lreid.losses import dmml_loss
from lreid.models import Embedder


def prototype_spread(features: Tensor, labels: Tensor, margin: float = 0.5) -> Tensor:
    """Pushes the mean directions of identities apart until their cosine is below ``margin``.

    Args:
        features: (B, D) floats.
        labels: (B,) integers of at least two identities.
        margin: in [-1, 1).

    Returns:
        A scalar, 0 or more: the mean excess of all pairs of identities.
    """
    if not -1 <= margin < 1:
        raise ValueError(f"margin is {margin}; must be in [-1, 1)")
    unit = torch.nn.functional.normalize(features, dim=1)  # (B, D)
    means = torch.stack([unit[labels == label].mean(0) for label in labels.unique()])  # (C, D)
    means = torch.nn.functional.normalize(means, dim=1)
    cosines = means @ means.T  # (C, C)
    pairs = torch.ones_like(cosines).triu(1).bool()
    return (cosines[pairs] - margin).clamp(min=0).mean()


# Compare its gradient with finite differences in float64, the minimum for a test of a loss.
torch.manual_seed(0)
labels = torch.arange(4).repeat_interleave(3)  # four identities of three images: two support and one query
features = torch.randn(12, 5, dtype=torch.float64, requires_grad=True)
print("gradient is right:", torch.autograd.gradcheck(lambda x: prototype_spread(x, labels, margin=-0.5), features))

# A few steps together with a loss of lreid. In a method, `loss` returns both as named terms: see own_method.py.
model = Embedder("small", height=32, width=16)
images = torch.randn(12, 3, 32, 16)  # normalised images
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(20):
    features = model(images)  # (12, 256)
    spread, dmml = prototype_spread(features, labels), dmml_loss(features, labels, num_support=2)
    optimizer.zero_grad()
    (dmml + spread).backward()
    optimizer.step()
    if step in (0, 19):
        print(f"step {step + 1}: dmml {dmml.item():.3f}, spread {spread.item():.3f}")
