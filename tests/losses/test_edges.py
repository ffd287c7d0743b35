"""Batches that no loss can learn from, and arguments that are refused: one row each."""

from collections.abc import Callable

import pytest
import torch
from oracles import UNEQUAL, draw
from test_erd import LABELS, PREVIOUS
from torch import Tensor

from lreid import losses
from lreid.losses.episodes import split_episode

ones, no_labels = torch.ones, torch.empty(0, dtype=torch.int64)
FEW = {"dwpp": (losses.dwpp_loss, (1,)), "dwopp": (losses.dwopp_loss, (1, 2))}


def few_classes(loss: Callable[..., Tensor], classes: int, prob_floor: float) -> Callable[[Tensor], Tensor]:
    labels = torch.arange(classes).repeat(4)
    return lambda student: loss(student, draw(4 * classes, 4, seed=1), labels, 2, prob_floor=prob_floor)


NOTHING = {
    **{
        f"{name}-{classes}-{floor}": ((4 * classes, 4), few_classes(loss, classes, floor))
        for name, (loss, counts) in FEW.items() for classes in counts for floor in (0.0, 1e-4)
    },
    "decoupled": ((3, 1), lambda student: losses.decoupled_distillation_loss(
        student, draw(3, 1), no_labels.new_zeros(3), alpha=1, beta=1)),
    "der-none": ((5, 6), lambda s: losses.dark_experience_loss(s, torch.full((5, 4), torch.nan))),
    "der-empty": ((5, 6), lambda s: losses.dark_experience_loss(s, torch.empty(5, 0))),
    "er-aml": ((3, 0, 4), lambda f: losses.er_aml_loss(*f, no_labels, no_labels)),
    "er-aml-triplet": ((3, 0, 4), lambda f: losses.er_aml_triplet_loss(*f)),
    "lwf": ((5, 6), lambda s: losses.knowledge_distillation_loss(s, torch.empty(5, 0))),
    "nt-xent-0": ((0, 2, 4), lambda p: losses.nt_xent_loss(p, temperature=0.5)),
    "nt-xent-1": ((1, 2, 4), lambda p: losses.nt_xent_loss(p, temperature=0.5)),
    "sample-nce": ((0, 3), lambda s: losses.sample_nce_loss(s, no_labels, torch.empty(0), [0])),
    "triplet": ((1, 4), lambda f: losses.batch_hard_triplet_loss(f, torch.tensor([7]))),
    "triplet-soft": ((1, 4), lambda f: losses.batch_hard_triplet_loss(f, torch.tensor([7]), margin=None)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_degenerate_batches_have_zero_loss_and_gradient(name: str) -> None:
    shape, loss = NOTHING[name]
    trained = draw(*shape).requires_grad_()
    value = loss(trained)
    value.backward()
    assert value.item() == 0 and trained.grad.eq(0).all()


def episode(loss: Callable[..., Tensor], **options: object) -> Callable[[], Tensor]:
    features = [draw(12, 4)] * (1 if loss is losses.dmml_loss else 2)
    return lambda: loss(*features, torch.tensor(UNEQUAL), **{"num_support": 2, **options})


def erd(num_support: int, previous: Tensor) -> Callable[[], Tensor]:
    teacher = draw(13, 4, seed=1)
    return lambda: losses.erd_losses(draw(13, 4), teacher, torch.tensor(LABELS), num_support, previous)[0]


def ida(student: tuple[int, ...], anchors: tuple[int, ...]) -> Callable[[], Tensor]:
    return lambda: losses.discriminant_alignment_loss(ones(student), ones(student), ones(anchors))


GENERATOR = torch.Generator()
TRIPLES, PAIRED = draw(3, 4, 4), torch.tensor([0, 1, 0, 2])
REFUSED = [
    (lambda: losses.nt_xent_loss(ones(4, 3, 5), temperature=0.5), "projections must be"),
    (lambda: losses.dask_color_resample(ones(1, 3, 4, 4)), "B of 2 or more"),
    (lambda: losses.dask_color_resample(ones(3, 4, 4)), "images must be"),
    (lambda: losses.dask_decode(ones(2, 3, 4, 4), ones(2, 83)), "images must be"),
    (lambda: losses.dask_decode(ones(2, 3, 4, 4), ones(3, 84)), "images must be"),
    (lambda: losses.dask_decode(ones(2, 3, 4, 4), ones(2, 84), groups=2), "with 2 groups"),
    (lambda: losses.dask_decode(ones(2, 3, 4), ones(2, 84)), "images must be"),
    (lambda: losses.dark_experience_loss(ones(5, 3), ones(5, 4)), "K_old <= K"),
    (episode(losses.dwopp_loss, prob_floor=1.0), "prob_floor"),
    (episode(losses.dwopp_loss, prob_floor=-0.1), "prob_floor"),
    (episode(losses.dwopp_loss, num_support=9), "no query"),
    (episode(losses.dmml_loss, num_support=5), "no query"),
    (episode(losses.dmml_loss, metric="l1"), "unknown metric 'l1'"),
    (episode(losses.dmml_loss, mining="soft"), "unknown mining 'soft'"),
    (episode(losses.dmml_loss, reduction="sum"), "unknown reduction 'sum'"),
    (lambda: losses.dkp_set_triplet_loss(ones(4, 1, 2), torch.zeros(4)), "features must be"),
    (lambda: losses.dkp_prototypes(ones(4, 2), ones(4, 3), torch.zeros(4)), "means and deviations"),
    (lambda: losses.dkp_prototypes(ones(4, 2), ones(4, 2), torch.zeros(3)), "features must be"),
    (lambda: losses.dkp_pkt_loss(ones(4, 2), *[ones(3, 3)] * 3), "as wide as the prototypes"),
    (lambda: losses.dkp_pkt_loss(ones(4, 2), ones(3, 2), *[ones(2, 2)] * 2), "means and deviations"),
    (lambda: losses.dkp_pkt_loss(ones(4, 2), *[ones(3, 2)] * 2, ones(2, 2)), "means and noise"),
    (lambda: split_episode(no_labels.new_zeros(2, 3), 1), "labels must be"),
    (lambda: split_episode(torch.tensor(1), 1), "labels must be"),
    (lambda: split_episode(torch.tensor([1, 1]), 0), "num_support"),
    (lambda: losses.er_aml_loss(*TRIPLES, PAIRED, PAIRED[:3] + 1), "negatives must be"),
    (lambda: losses.er_aml_loss(*TRIPLES, PAIRED, PAIRED), "has the label of its anchor"),
    (lambda: losses.sample_pairs(ones(2, 1), ones(2), GENERATOR), "labels must be"),
    (lambda: losses.sample_pairs(ones(2), ones(2), GENERATOR, negatives="none"), "unknown negatives"),
    (erd(2, torch.zeros(13, dtype=torch.bool)), "no query"),
    (erd(4, PREVIOUS), "no query"),
    (erd(2, torch.ones(13, dtype=torch.bool)), "at least one row"),
    (erd(2, PREVIOUS.int()), "is_previous must be"),
    (erd(2, PREVIOUS[:5]), "is_previous must be"),
    (lambda: losses.lstkc_alpha(ones(3, 2), ones(2, 2)), "new and old must be"),
    (lambda: losses.lstkc_alpha(ones(0, 2), ones(0, 2)), "1 or more rows"),
    (lambda: losses.lstkcpp_alpha(ones(1, 2), ones(1, 2)), "2 or more rows"),
    (lambda: losses.lstkcpp_alpha(ones(3, 2), ones(3, 2), scale=0), "scale must be above 0"),
    (lambda: losses.linear_combination({"a": ones(2)}, {}, 0.5), "only one of the two has a"),
    (lambda: losses.linear_combination({"a": ones(2)}, {"a": ones(3)}, 0.5), "a: old is"),
    (lambda: losses.linear_combination({"a": ones(2, 2)}, {"a": ones(2, 3)}, 0.5), "a: old is"),
    (lambda: losses.linear_combination({"a": torch.tensor(1)}, {"a": ones(3)}, 0.5), "a: old is"),
    (lambda: losses.pad_ema({"a": ones(2)}, {"b": ones(2)}), "the same names"),
    (lambda: losses.pad_ema({}, {}, momentum=1.5), "momentum must be in"),
    (ida((0, 4), (3, 4)), "at least one row"),
    (ida((6, 4), (3, 5)), "anchors must be"),
    (ida((6, 4), (0, 4)), "anchors must be"),
    (lambda: losses.rotate_batch(torch.zeros(2, 8, 4), torch.tensor([0, 1])), "images must be"),
    (lambda: losses.rotate_batch(torch.zeros(2, 3, 8, 4), torch.tensor([0])), "labels"),
    (lambda: losses.class_means(draw(3, 4), torch.tensor([0, 1])), "features must be"),
    (lambda: losses.prototype_radius(draw(3, 4), torch.tensor([0, 1])), "features must be"),
    (lambda: losses.patchkd_div_loss(ones(5, 2), 0), "features must be"),
    (lambda: losses.patchkd_patch_features(ones(2, 5, 4, 3), ones(2, 3, 4, 4)), "feature_map must be"),
    (lambda: losses.patchkd_patch_features(ones(2, 5, 4, 3), ones(1, 3, 4, 3)), "feature_map must be"),
    (lambda: losses.batch_hard_triplet_loss(ones(4, 2), torch.zeros(4, 1)), "labels must be"),
    (lambda: losses.importance_scores(ones(2, 2), torch.tensor([0, -1])), r"labels must be in \[0, 2\)"),
    (lambda: losses.importance_scores(ones(2, 2), torch.tensor([0, 2])), r"labels must be in \[0, 2\)"),
    (lambda: losses.sample_nce_loss(ones(4, 2), torch.zeros(4), ones(3), []), "weights must have"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_mismatched_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
