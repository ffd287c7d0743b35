"""What every loss must do, whatever it computes. A new loss is a row of ``CASES``; its own file has its oracle.

A case draws a batch: tensors that are trained, tensors that are not (teachers), and labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from oracles import UNEQUAL, draw
from torch import Tensor

from lreid import losses

COLUMNS = (0, 2, 2, 1, 5)  # labels that are columns of logits


@dataclass(frozen=True)
class Case:
    """A loss and a batch that it takes: ``call(*trained, *fixed, labels)``, without ``labels`` where there are none.

    Attributes:
        trained, fixed: shapes of tensors; the fixed ones get no gradient.
        order: ``any`` order of the rows gives the same loss, any that keeps the order within a ``class``, or ``none``.
        names: labels may have other names.
        temperatures: options that must be above 0.
        smooth: the gradient is that of the value; it is not where a target in the student's numbers has none.
        equal: the loss and its gradient are 0 where the fixed tensors are the trained ones.
        alone: the loss and its gradient are 0 for a batch of one identity.
    """

    name: str
    call: Callable[..., Tensor]
    trained: tuple[tuple[int, ...], ...]
    fixed: tuple[tuple[int, ...], ...] = ()
    labels: tuple[int, ...] = ()
    order: str = "any"
    names: bool = True
    temperatures: tuple[str, ...] = ()
    smooth: bool = True
    equal: bool = False
    alone: bool = False

    def batch(self, seed: int = 0) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        drawn = [draw(*shape, seed=seed + n, scale=0.7) for n, shape in enumerate((*self.trained, *self.fixed))]
        labels = [torch.tensor(self.labels)] if self.labels else []
        return drawn[: len(self.trained)], drawn[len(self.trained) :], labels


def most_frequent(labels: Tensor) -> Tensor:
    return labels.mode().values[None]


def er_aml(*features: Tensor, **options: Any) -> Tensor:
    *features, labels = features
    return losses.er_aml_loss(*features, labels, labels + 1, **options)


def erd(student: Tensor, teacher: Tensor, labels: Tensor, **options: Any) -> Tensor:
    previous = (labels[:, None] == labels).sum(1) >= 4  # the two labels with the most images
    return sum(losses.erd_losses(student, teacher, labels, 2, previous, **options))


def pad(a: Tensor, b: Tensor, z: Tensor, old_a: Tensor, old_b: Tensor, old_z: Tensor, **options: Any) -> Tensor:
    return losses.pad_viskd_loss([a, b], [old_a, old_b], z, old_z, **options)


def alignment(student: Tensor, teacher: Tensor, **options: Any) -> Tensor:
    return losses.discriminant_alignment_loss(student, teacher, draw(5, 4, seed=7, scale=0.5), **options)


def transfer(features: Tensor, **options: Any) -> Tensor:
    past = (draw(3, 5, seed=seed) for seed in (7, 8, 9))
    return losses.dkp_pkt_loss(features, *past, **options)


def supcon(projections: Tensor, labels: Tensor, *, temperature: float = 0.5, **options: Any) -> Tensor:
    current = most_frequent(labels)
    return losses.asymmetric_supcon_loss(projections, labels, current, temperature=temperature, **options)


def decoupled(student: Tensor, teacher: Tensor, targets: Tensor, *, temperature: float = 2.0) -> Tensor:
    options = {"alpha": 0.3, "beta": 0.7, "temperature": temperature}
    return losses.decoupled_distillation_loss(student, teacher, targets, **options)


def sample_nce(scores: Tensor, labels: Tensor, **options: Any) -> Tensor:
    weights = 0.01 * (1 + torch.bincount(labels)[labels])  # of images of one class alike
    return losses.sample_nce_loss(scores, labels, weights, [1, 5], **options)


IDENTITIES: dict[str, Any] = {"trained": ((12, 4),), "labels": tuple(UNEQUAL)}
TEACHER: dict[str, Any] = {"trained": ((12, 4),), "fixed": ((12, 4),)}
DISTILLED: dict[str, Any] = {**IDENTITIES, "fixed": ((12, 6),), "temperatures": ("temperature",)}
LOGITS: dict[str, Any] = {"trained": ((5, 6),), "fixed": ((5, 4),), "names": False}
CLASSES: dict[str, Any] = {"trained": ((5, 6),), "labels": COLUMNS, "names": False}
METRICS = ("sqeuclidean", "euclidean", "cosine")

CASES = [
    *(
        Case(f"dmml-{metric}-{mining}", partial(losses.dmml_loss, num_support=2, metric=metric, mining=mining),
             **IDENTITIES, order="class")
        for metric in METRICS for mining in ("hard", "center")
    ),
    *(
        Case(f"{loss.__name__}-{metric}-{temperature}",
             lambda s, t, labels, loss=loss, metric=metric, T=temperature, **options: loss(
                 s, t, labels, 2, metric=metric, **{"temperature": T, **options}),
             **DISTILLED, order="class", equal=True, alone=True)
        for loss in (losses.dwpp_loss, losses.dwopp_loss) for metric in METRICS for temperature in (1.0, 10.0)
    ),
    Case("erd", erd, **TEACHER, labels=tuple(UNEQUAL), order="class", temperatures=("temperature",), equal=True),
    *(
        Case(f"ida-{metric}", partial(alignment, metric=metric), **TEACHER, temperatures=("temperature",), equal=True)
        for metric in METRICS
    ),
    Case("decoupled", decoupled, ((5, 6),), ((5, 6),), COLUMNS, names=False, temperatures=("temperature",), equal=True),
    *(
        Case(f"triplet-{margin}-{normalize}",
             partial(losses.batch_hard_triplet_loss, margin=margin, normalize=normalize), **IDENTITIES, alone=True)
        for margin in (0.3, None) for normalize in (False, True)
    ),
    Case("plasticity", losses.plasticity_loss, **IDENTITIES, alone=True),
    Case("stability", losses.stability_loss, **TEACHER, equal=True),
    Case("smoothed", losses.smoothed_cross_entropy, **CLASSES),
    *(
        Case(f"affinity-{reverse}", partial(losses.affinity_kl_loss, reverse=reverse), ((6, 4),), ((6, 5),),
             temperatures=("temperature",), equal=True)
        for reverse in (False, True)
    ),
    Case("rskt", losses.lstkc_rskt_loss, **DISTILLED),
    Case("rskt-detached", partial(losses.lstkc_rskt_loss, detach_target=True), **DISTILLED, smooth=False),
    *(
        Case(f"lstkcpp-single-{weighted}", partial(losses.lstkcpp_single_loss, weighted=weighted), **DISTILLED)
        for weighted in (False, True)
    ),
    *(
        Case(f"lstkcpp-dual-{weighted}", partial(losses.lstkcpp_dual_loss, weighted=weighted), ((12, 4),),
             ((12, 5), (12, 3)), tuple(UNEQUAL), temperatures=("temperature",))
        for weighted in (False, True)
    ),
    Case("relations", losses.relation_distillation_loss, ((6, 4),), ((6, 5),),
         temperatures=("temperature", "teacher_temperature")),
    Case("mean-squares", losses.mean_squared_distillation_loss, **TEACHER, equal=True),
    Case("one-norm", losses.feature_distillation_loss, **TEACHER, equal=True),
    Case("supcon", supcon, ((12, 2, 4),), labels=tuple(UNEQUAL), temperatures=("temperature", "base_temperature")),
    Case("nt-xent", lambda z, temperature=0.5: losses.nt_xent_loss(z, temperature=temperature), ((5, 2, 4),),
         temperatures=("temperature",)),
    Case("contrast", lambda a, b: losses.contrast_scores(a, b).sum(), ((5, 4), (5, 4))),
    Case("sample-nce", sample_nce, **CLASSES, temperatures=("temperature",)),
    Case("prototype-relations", losses.prototype_relation_loss, ((5, 4),), ((5, 4),),
         temperatures=("temperature", "teacher_temperature")),
    Case("importance", lambda s, y, **o: losses.importance_scores(s, y, **o)[1], **CLASSES, order="none",
         temperatures=("temperature",)),
    Case("der", losses.dark_experience_loss, **LOGITS),
    Case("icarl", lambda s, t, labels: losses.icarl_loss(s, labels, t), labels=COLUMNS, **LOGITS),
    Case("icarl-first", losses.icarl_loss, **CLASSES),
    Case("lwf", losses.knowledge_distillation_loss, **LOGITS, temperatures=("temperature",)),
    Case("er-ace", losses.asymmetric_cross_entropy, **CLASSES, alone=True),
    Case("er-ace-official", partial(losses.asymmetric_cross_entropy, seen=torch.tensor([4])), **CLASSES),
    Case("er-aml", er_aml, ((5, 4),) * 3, labels=COLUMNS, names=False,
         temperatures=("temperature", "base_temperature")),
    Case("er-aml-triplet", losses.er_aml_triplet_loss, ((5, 4),) * 3, temperatures=("margin",)),
    Case("dkp-set-triplet", losses.dkp_set_triplet_loss, ((12, 3, 4),), labels=tuple(UNEQUAL), alone=True),
    Case("dkp-pkt", transfer, ((6, 5),), temperatures=("temperature", "relation_temperature")),
    Case("dkp-pkt-detached", partial(transfer, detach_target=True), ((6, 5),), smooth=False),
    Case("pad", pad, ((3, 5), (3, 4), (3, 6)), ((3, 5), (3, 4), (3, 6)), temperatures=("temperature",), equal=True),
    Case("pad-image-text", losses.pad_image_text_loss, ((5, 4), (5, 4)), labels=COLUMNS),
    Case("patchkd-kd", losses.patchkd_kd_loss, **LOGITS, temperatures=("temperature",)),
    Case("patchkd-kd-learned", losses.patchkd_kd_loss, ((5, 4), (5, 4))),
    Case("patchkd-conf", losses.patchkd_conf_loss, ((5, 4),), temperatures=("temperature",)),
    Case("patchkd-rd", losses.patchkd_rd_loss, ((2, 3, 4),), ((2, 3, 5),)),
    Case("patchkd-div", partial(losses.patchkd_div_loss, patches=3), ((6, 4),), order="none"),
]  # fmt: skip
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def backward(case: Case, trained: list[Tensor], fixed: list[Tensor], labels: list[Tensor], **options: float) -> Tensor:
    """The loss, after all tensors were asked for gradients."""
    for each in (*trained, *fixed):
        each.requires_grad_()
    loss = case.call(*trained, *fixed, *labels, **options)
    loss.backward()
    return loss.detach()


@each_case
def test_gradients_match_finite_differences_and_teachers_have_none(case: Case) -> None:
    trained, fixed, labels = case.batch()
    assert backward(case, trained, fixed, labels).shape == ()
    assert all(each.grad is None for each in fixed)
    assert all(each.grad.abs().max() > 0 for each in trained)
    fixed = [each.detach() for each in fixed]
    if case.smooth:
        assert torch.autograd.gradcheck(lambda *trained: case.call(*trained, *fixed, *labels), trained)


@each_case
@pytest.mark.parametrize("scale", [0.0, 1e-20, 50.0, 1e15])
@pytest.mark.parametrize("cold", [False, True])
def test_float32_stays_finite(case: Case, scale: float, cold: bool) -> None:
    trained, fixed, labels = case.batch()
    trained, fixed = ([(scale * each).float() for each in tensors] for tensors in (trained, fixed))
    loss = backward(case, trained, fixed, labels, **dict.fromkeys(case.temperatures if cold else (), 1e-5))
    assert loss.dtype == torch.float32 and loss.isfinite()
    assert all(each.grad.isfinite().all() for each in trained)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_losses_compute_in_float64_under_autocast(case: Case, dtype: torch.dtype) -> None:
    trained, fixed, labels = case.batch()
    batch = [each.to(dtype) for each in (*trained, *fixed)]
    expected = case.call(*(each.double() for each in batch), *labels).item()
    with torch.autocast("cpu", torch.bfloat16):
        loss = case.call(*batch, *labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-7)


@each_case
def test_nan_features_give_a_nan_loss(case: Case) -> None:
    trained, fixed, labels = case.batch()
    trained[0].view(-1)[0] = torch.nan
    assert case.call(*trained, *fixed, *labels).isnan()
    if case.alone and case.order == "any":
        assert case.call(*trained, *fixed, torch.zeros_like(labels[0])).isnan()


@each_case
@pytest.mark.parametrize("seed", range(5))
def test_losses_ignore_order_and_names_of_labels(case: Case, seed: int) -> None:
    trained, fixed, labels = case.batch(seed)
    expected = case.call(*trained, *fixed, *labels)
    order = torch.randperm(len(trained[0]), generator=torch.Generator().manual_seed(seed))
    if case.order == "none":
        order = torch.arange(len(order))
    if case.order == "class":
        for label in labels[0].unique():
            rows = labels[0][order] == label
            order[rows] = order[rows].sort().values
    renamed = [10 - 3 * each if case.names else each for each in labels]
    changed = case.call(*(each[order] for each in (*trained, *fixed, *renamed)))
    torch.testing.assert_close(changed, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case.equal], ids=lambda case: case.name)
def test_equal_models_have_zero_distillation(case: Case) -> None:
    trained, _, labels = case.batch()
    loss = backward(case, trained, [each.clone() for each in trained], labels)
    assert abs(loss.item()) < 1e-14
    assert all(each.grad.abs().max() < 1e-13 for each in trained)


@pytest.mark.parametrize("case", [case for case in CASES if case.alone], ids=lambda case: case.name)
def test_single_identity_has_zero_loss(case: Case) -> None:
    trained, fixed, labels = case.batch()
    assert backward(case, trained, fixed, [torch.full_like(labels[0], 3)]) == 0
    assert all(each.grad.eq(0).all() for each in trained)


@each_case
def test_mismatched_input_is_refused(case: Case) -> None:
    trained, fixed, labels = case.batch()
    batch = [*trained, *fixed, *labels]
    wrong = [(n, each[:-1]) for n, each in enumerate(batch) if len(batch) > 1]  # a row less than the others
    wrong += [(n, each.flatten()[: len(each)]) for n, each in enumerate((*trained, *fixed))]
    wrong += [(n, each[..., None]) for n, each in enumerate((*trained, *fixed))]
    for place, other in wrong:
        with pytest.raises(ValueError, match="must"):
            case.call(*batch[:place], other, *batch[place + 1 :])
    for option in case.temperatures:
        for value in (0.0, -1.0):
            with pytest.raises(ValueError, match=option.rsplit("_")[-1]):
                case.call(*batch, **{option: value})
