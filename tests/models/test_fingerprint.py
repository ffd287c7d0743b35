"""The fingerprint changes when, and only when, the features do."""

import pytest
import torch

from lreid.models import Embedder
from lreid.models.fingerprint import fingerprint


def embedder(**options: object) -> Embedder:
    torch.manual_seed(0)
    return Embedder("small", **({"height": 32, "width": 16} | options))


def test_mode_layout_and_counters_do_not_change_the_fingerprint() -> None:
    model = embedder().train()
    before = fingerprint(model)
    assert len(before) == 16 and int(before, 16) > 0
    for name, buffer in model.named_buffers():
        if name.endswith("num_batches_tracked"):
            buffer += 7
    assert fingerprint(model.eval().to(memory_format=torch.channels_last)) == before


@pytest.mark.parametrize(
    "options",
    [
        {"height": 48},
        {"width": 24},
        {"mean": (0.5, 0.456, 0.406)},
        {"std": (0.229, 0.224, 0.2)},
        {"pooling": "gem"},
        {"scale": 0.5},
        {"norm": "batch+input"},
        {"norm": "batch+grey"},
    ],
)
def test_settings_change_the_fingerprint(options: dict[str, object]) -> None:
    assert fingerprint(embedder(**options)) != fingerprint(embedder())


@pytest.mark.parametrize("name", ["backbone.stem.0.weight", "backbone.stem.1.bias", "backbone.stem.1.running_var"])
def test_one_number_changes_the_fingerprint(name: str) -> None:
    model = embedder()
    before = fingerprint(model)
    with torch.no_grad():
        model.state_dict()[name].view(-1)[0] += 1e-3
    assert fingerprint(model) != before
