"""float32 is float32 where it is promised, however torch was told to round."""

from collections.abc import Iterator

import pytest
import torch

from lreid.models import Embedder, frozen_copy
from lreid.retrieval import evaluate
from lreid.utils.devices import PRECISIONS, full_precision, tf32

if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    pytest.skip("torch before 2.9 has other settings", allow_module_level=True)

PLACES = (
    *(torch.backends.cuda.matmul, torch.backends.cudnn.conv),
    *(torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv),
)


def settings() -> list[str]:
    return [place.fp32_precision for place in PLACES]


@pytest.fixture(params=["each", "all", "of old"])
def rounded(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Torch rounds, told in each of the ways that there are; gives its settings."""
    before, of_all = settings(), torch.backends.fp32_precision
    for place in PLACES[:1] if request.param == "of old" else PLACES:
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


def test_inside_nothing_is_rounded_and_outside_all_is_as_before(rounded: list[str]) -> None:
    assert "tf32" in rounded
    with pytest.raises(KeyError), full_precision():
        assert settings() == 4 * ["ieee"]
        with tf32():
            assert settings() == 4 * ["tf32"]
        assert settings() == 4 * ["ieee"]
        raise KeyError
    assert settings() == rounded


def test_features_and_rankings_are_of_float32_and_teachers_of_their_students_precision(rounded: list[str]) -> None:
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
