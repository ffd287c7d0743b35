"""Settings of torch for rounding and determinism, within their contexts and afterwards."""

from collections.abc import Iterator

import pytest
import torch

from lreid.models import Embedder, frozen_copy
from lreid.retrieval import evaluate
from lreid.utils.devices import PRECISIONS, computing, full_precision, tf32

older_torch = not hasattr(torch.backends.cuda.matmul, "fp32_precision")
needs_torch_2_9 = pytest.mark.skipif(older_torch, reason="torch before 2.9 has other settings")
PLACES = (
    *(torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)),
    *(getattr(torch.backends.mkldnn, "matmul", None), getattr(torch.backends.mkldnn, "conv", None)),
)


@pytest.mark.parametrize("deterministic", [False, True])
def test_settings_are_restored_after_computing(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pytest.raises(KeyError), computing(rounded=False, deterministic=deterministic):
        assert torch.are_deterministic_algorithms_enabled() == deterministic
        torch.backends.cudnn.benchmark = True
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark


def settings() -> list[str]:
    return [place.fp32_precision for place in PLACES]


@pytest.fixture(params=["each", "all", "matmul"])
def rounded(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Torch rounds float32, set in each of three ways; returns its settings."""
    before, of_all = settings(), torch.backends.fp32_precision
    for place in PLACES[:1] if request.param == "matmul" else PLACES:
        place.fp32_precision = "none"
    if request.param == "each":
        for place in PLACES:
            place.fp32_precision = "tf32"
    elif request.param == "all":
        torch.backends.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision("high")
    yield settings()
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = of_all
    for place, value in zip(PLACES, before, strict=True):
        place.fp32_precision = value


@needs_torch_2_9
def test_full_precision_overrides_settings_and_restores_them(rounded: list[str]) -> None:
    assert "tf32" in rounded
    with pytest.raises(KeyError), full_precision():
        assert settings() == 4 * ["ieee"]
        with tf32():
            assert settings() == 4 * ["tf32"]
        assert settings() == 4 * ["ieee"]
        raise KeyError
    assert settings() == rounded


@needs_torch_2_9
def test_features_have_full_precision_and_teachers_that_of_their_students(rounded: list[str]) -> None:
    seen: list[str] = []
    model = Embedder("small", height=32, width=16)
    model.backbone.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.conv.fp32_precision))
    images = torch.rand(2, 3, 32, 16)
    for precision, own in (("fp32", "ieee"), ("tf32", "tf32")):
        model.precision = PRECISIONS[precision]
        model(images)
        frozen_copy(model)(images)
        features = model.extract(images)
        assert seen == [own, own, "ieee"]
        seen.clear()
    evaluate(features, features, [1, 1], [1, 1], [0, 1], [0, 1])
    assert settings() == rounded
