"""What methods with a classifier say of all classes so far, from the features that retrieval compares."""

import pytest
import torch
from family import model, task_of
from torch.nn import functional as F

from lreid.methods import build_method, method_class

IMAGES = torch.randn(5, 3, 32, 16, generator=torch.Generator().manual_seed(2))


def scores_of(name: str, **options):
    """A method with two tasks of four classes begun, its logits of images and its scores of their features."""
    method = build_method(name, model(neck=method_class(name).neck), **options)
    for index in range(2):
        method.begin_task(task_of(index))
    if method.neck:
        method.model.neck.running_mean.uniform_(-1, 1)  # not what it begins with
    method.model.eval()
    with torch.no_grad():
        return method, method.class_scores(torch.from_numpy(method.model.extract(IMAGES)))


REPLAY = ("er", "er_ace", "er_aml", "mir", "der", "der_pp", "a_gem", "gem", "gss", "fdr", "gdumb")


@pytest.mark.parametrize("name", [*REPLAY, "bot_ft", "lwf", "icarl", "aka"])
def test_class_scores_are_the_logits_of_the_classifier(name: str) -> None:
    method, scores = scores_of(name)
    expected = method.classifier(method.model.neck(method.model(IMAGES)))
    assert scores.shape == (5, 8)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("rotate", [True, False])
def test_pass_scores_are_the_logits_of_upright_images(rotate: bool) -> None:
    method, scores = scores_of("pass_proto", rotate=rotate)
    logits = method.classifier(method.model.neck(method.model(IMAGES)))  # (5, 8 turns)
    assert scores.shape == (5, 8)
    for label in range(8):
        torch.testing.assert_close(scores[:, label], logits[:, (4 if rotate else 1) * label])


def test_cclis_scores_are_cosines_with_prototypes() -> None:
    method, scores = scores_of("cclis")
    projections = method.network(IMAGES).projections
    expected = F.cosine_similarity(projections[:, None], method.prototypes.weight[None], dim=2)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("name", ["dwopp", "co2l", "contrast_scoring", "erd", "er_metric"])
def test_methods_without_classifier_have_no_class_scores(name: str) -> None:
    assert scores_of(name)[1] is None
