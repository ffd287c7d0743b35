"""Values and gradients of the official codes (tests/golden), which CONTRIBUTING.md describes.

A row of ``CASES`` is a loss of the golden files whose names begin so; the arrays named in ``grad`` get gradients.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracles import GOLDEN, golden_names, load_golden
from torch import Tensor
from torch.nn import functional as F

from lreid import losses

Arrays = dict[str, Tensor]


def test_every_description_has_its_arrays() -> None:
    described, stored = ({path.stem for path in GOLDEN.glob(f"*.{suffix}")} for suffix in ("json", "npz"))
    assert described == stored and len(stored) > 50


@pytest.mark.parametrize("name", golden_names())
def test_golden_description_matches_its_arrays(name: str) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert name == f"{case['loss']}_{case['case']}"
    assert case["source"] and case["torch"] and case["numpy"] and isinstance(case["hyper"], dict)
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        found = {key: [list(value.shape), str(value.dtype)] for key, value in arrays.items()}
    assert found == {key: [each["shape"], each["dtype"]] for key, each in case["arrays"].items()}


def metric(name: str) -> Any:
    return "cosine" if name == "cosine" else "sqeuclidean"


def episode_labels(h: dict) -> Tensor:
    return torch.arange(h["N"]).repeat_interleave(h["n_s"] + h["n_q"])


def dmml(h: dict, a: Arrays) -> Tensor:
    mining: Any = "center" if h["distance_mode"] == "center_support" else "hard"
    options: dict[str, Any] = {"margin": h["margin"], "metric": metric(h["dmml_dist_metric"]), "mining": mining}
    return losses.dmml_loss(a["feature"], a["label"], h["n_s"], **options)


def episodic(loss: Callable[..., Tensor]) -> Callable[[dict, Arrays], Tensor]:
    return lambda h, a: loss(
        a["feat_new"], a["feat_old"], episode_labels(h), h["n_s"], temperature=h["T"], metric=metric(h["metric"])
    )


def decoupled(h: dict, a: Arrays, **weights: float) -> Tensor:
    weights = weights or {"alpha": h["alpha"], "beta": h["beta"]}
    options: dict[str, Any] = {"temperature": h["T"], **weights}
    return losses.decoupled_distillation_loss(a["logits_new"], a["logits_old"], a["target"], **options)


def er_aml(h: dict, a: Arrays) -> Tensor:
    chosen = [a[key][~a["invalid"]] for key in ("hidden", "pos", "neg", "y", "y_neg")]
    return losses.er_aml_loss(*chosen, temperature=h["temperature"], base_temperature=h["base_temperature"])


def relations(h: dict, a: Arrays) -> Tensor:
    student, teacher = F.normalize(a["raw_cur"]), F.normalize(a["raw_past"])
    return losses.relation_distillation_loss(
        student, teacher, temperature=h["kappa_current"], teacher_temperature=h["kappa_past"]
    )


def prototype_relations(h: dict, a: Arrays) -> Tensor:
    old = h["target_task"] * h["cls_per_task"]
    student, teacher = a["output_cur"].T[:, :old], a["output_past"].T[:, :old]
    return losses.prototype_relation_loss(
        student, teacher, temperature=h["kappa_cur"], teacher_temperature=h["kappa_past"]
    )


def supcon(h: dict, a: Arrays) -> Tensor:
    temperatures = {key: h[key] for key in ("temperature", "base_temperature")}
    return losses.asymmetric_supcon_loss(F.normalize(a["raw"], dim=2), a["label"], a["cur"], **temperatures)


def rskt(h: dict, a: Arrays, **options: bool) -> Tensor:
    return losses.lstkc_rskt_loss(a["feat_new"], a["feat_old"], a["labels"], temperature=h["tau"], **options)


def dual(h: dict, a: Arrays) -> Tensor:
    teachers = a["feat_short"], a["feat_long"]
    options = {"temperature": h["tau"], "weighted": h["weighted_loss"]}
    return losses.lstkcpp_dual_loss(a["feat_new"], *teachers, a["labels"], **options)


def single(h: dict, a: Arrays) -> Tensor:
    options = {"temperature": h["tau"], "weighted": h["weighted_loss"]}
    return losses.lstkcpp_single_loss(a["feat_new"], a["feat_short"], a["labels"], **options)


def transfer(h: dict, a: Arrays, **options: bool) -> Tensor:
    temperatures = {"relation_temperature": h["lambda_1"], "temperature": h["lambda_2"]}
    past = a["proto_mean"], a["proto_std"], a["noise"]
    return losses.dkp_pkt_loss(a["feat"], *past, **temperatures, **options)


def pad(h: dict, a: Arrays) -> Tensor:
    student, teacher = ([a[key] for key in sorted(a) if key.startswith(start)] for start in ("feat_s", "feat_t"))
    weights = {"feature_weight": h["lambda_feat"], "logit_weight": h["lambda_logit"]}
    return losses.pad_viskd_loss(student, teacher, a["logits_s"], a["logits_t"], temperature=h["T"], **weights)


def lwf_of_old_classes(h: dict, a: Arrays) -> Tensor:
    old = a["logits_new"][:, : a["logits_old"].shape[1]]
    return losses.knowledge_distillation_loss(old, a["logits_old"], temperature=h["T"]) / h["T"] ** 2


def smoothed(h: dict, a: Arrays) -> Tensor:
    return F.cross_entropy(a["logits"], a["label"], label_smoothing=h["epsilon"])


def colours(h: dict, a: Arrays, generator: torch.Generator | None) -> Tensor:
    (generator or torch).manual_seed(h["torch_seed"])
    return losses.dask_color_resample(a["images"], generator=generator)


def prototypes(a: Arrays) -> tuple[Tensor, ...]:
    return losses.dkp_prototypes(a["inst_mean"], a["inst_std"], a["labels"])


def alpha(measure: Callable[..., float], a: Arrays, **options: float) -> Tensor:
    return torch.tensor(measure(a["feat_new"], a["feat_old"], **options), dtype=torch.float64)


# The beginning of the names: (loss of hyper-parameters and arrays, {input: its gradient}, value, relative tolerance).
CASES: dict[str, tuple[Callable[[dict, Arrays], Tensor], dict[str, str], str, float]] = {
    "aka_kd": (
        lambda h, a: losses.knowledge_distillation_loss(a["logits_new"], a["logits_old"], temperature=h["T"]),
        {"logits_new": "grad"}, "loss", 1e-9,
    ),
    "aka_plasticity": (
        lambda h, a: losses.plasticity_loss(a["feature"], a["label"], margin=h["margin"]),
        {"feature": "grad"}, "loss", 1e-9,
    ),
    "bot": (
        lambda h, a: losses.batch_hard_triplet_loss(
            a["feature"], a["label"], margin=h["margin"], normalize=h["normalize"]
        ),
        {"feature": "grad"}, "loss_triplet", 1e-9,
    ),
    "cclis_prd": (prototype_relations, {"output_cur": "grad"}, "loss", 1e-5),
    "co2l_ird": (relations, {"raw_cur": "grad"}, "loss", 1e-9),
    "dask_affinity_kl": (
        lambda h, a: losses.affinity_kl_loss(a["feat_new"], a["feat_old"], temperature=h["tau"]),
        {"feat_new": "grad"}, "loss", 1e-9,
    ),
    "dkd": (decoupled, {"logits_new": "grad"}, "loss", 1e-9),
    "dkp_pkt": (transfer, {"feat": "grad"}, "loss", 1e-9),
    "dkp_set_triplet": (
        lambda h, a: losses.dkp_set_triplet_loss(a["merge_feat"], a["labels"]), {"merge_feat": "grad"}, "loss", 1e-9,
    ),
    "dkppp_distill": (
        lambda h, a: losses.affinity_kl_loss(a["feat_new"], a["feat_old"], temperature=h["tau"], reverse=True),
        {"feat_new": "grad"}, "loss", 1e-9,
    ),
    "dmml": (dmml, {"feature": "grad"}, "loss", 1e-9),
    "dwopp": (episodic(losses.dwopp_loss), {"feat_new": "grad"}, "loss", 1e-9),
    "dwpp": (episodic(losses.dwpp_loss), {"feat_new": "grad"}, "loss", 1e-9),
    "er_ace": (
        lambda h, a: losses.asymmetric_cross_entropy(a["logits"], a["label"], a["seen"]),
        {"logits": "grad"}, "loss", 1e-9,
    ),
    "er_aml": (er_aml, {"hidden": "grad", "pos": "grad_pos", "neg": "grad_neg"}, "loss", 1e-9),
    "lstkc_rskt": (rskt, {"feat_new": "grad"}, "loss", 1e-9),
    "lstkcpp_dual": (dual, {"feat_new": "grad"}, "loss", 1e-9),
    "lstkcpp_single": (single, {"feat_new": "grad"}, "loss", 1e-9),
    "lwf_mammoth": (lwf_of_old_classes, {"logits_new": "grad"}, "loss", 1e-9),
    "pad_viskd": (pad, {"feat_s0": "grad_feat0", "logits_s": "grad_logits"}, "loss", 1e-9),
    "patchkd_conf": (
        lambda h, a: losses.patchkd_conf_loss(a["old_patch_logits"], temperature=h["T"]),
        {"old_patch_logits": "grad"}, "loss", 1e-9,
    ),
    "patchkd_div": (lambda h, a: losses.patchkd_div_loss(a["feat"], int(a["k"])), {"feat": "grad"}, "loss", 1e-9),
    "patchkd_kd": (
        lambda h, a: losses.patchkd_kd_loss(a["new_logits"], a["old_logits"], temperature=h["T"]),
        {"new_logits": "grad", "old_logits": "grad_old"}, "loss", 1e-9,
    ),
    "patchkd_rd": (lambda h, a: losses.patchkd_rd_loss(a["student"], a["teacher"]), {"student": "grad"}, "loss", 1e-9),
    "soft_triplet": (
        lambda h, a: losses.batch_hard_triplet_loss(a["feat"], a["labels"], margin=None, normalize=True),
        {"feat": "grad"}, "loss", 1e-9,
    ),
    "co2l_asymsupcon": (supcon, {"raw": "grad"}, "loss", 1e-9),
    # What is no loss: scores, colours, kernels, prototypes, shares.
    "contrast_score": (lambda h, a: losses.contrast_scores(a["proj"], a["proj_flip"]), {}, "score_buffer", 1e-12),
    "contrast_score#": (
        lambda h, a: losses.contrast_scores(a["proj_inc"], a["proj_inc_flip"]), {}, "score_incoming", 1e-12,
    ),
    "dask_color_resample": (lambda h, a: colours(h, a, torch.Generator()), {}, "loss", 1e-9),
    "dask_color_resample#": (lambda h, a: colours(h, a, None), {}, "loss", 1e-9),
    "dask_decode": (
        lambda h, a: losses.dask_decode(a["images"], a["kernels"], groups=h["groups"]), {}, "loss", 1e-9,
    ),
    "dkp_prototypes": (lambda h, a: prototypes(a)[0], {}, "proto_mean", 1e-12),
    "dkp_prototypes#": (lambda h, a: prototypes(a)[1], {}, "proto_std", 1e-12),
    "dkp_prototypes##": (lambda h, a: prototypes(a)[2], {}, "labels_out", 0),
    "fusion_alpha": (lambda h, a: alpha(losses.lstkc_alpha, a, scale=h["norm_lstkc"]), {}, "alpha_lstkc", 1e-9),
    "fusion_alpha#": (lambda h, a: alpha(losses.lstkcpp_alpha, a, scale=h["norm_lstkcpp"]), {}, "alpha_lstkcpp", 1e-9),
    "fusion_alpha##": (lambda h, a: alpha(losses.lstkc_alpha, a), {}, "alpha_lstkc", 1e-9),  # these are the defaults
    "fusion_alpha###": (lambda h, a: alpha(losses.lstkcpp_alpha, a), {}, "alpha_lstkcpp", 1e-9),
    "patchkd_patch_features": (
        lambda h, a: losses.patchkd_patch_features(a["feature_map"], a["theta"]), {}, "instance", 1e-12,
    ),
    "patchkd_patch_features#": (
        lambda h, a: losses.patchkd_patch_features(a["feature_map"], a["theta"]).flatten(0, 1), {}, "loss", 1e-12,
    ),
    # The same arrays by another formula, without gradients.
    "bot#": (smoothed, {"logits": "grad_logits"}, "loss_ce", 1e-5),  # by torch; the official targets are in float32
    "dkd#": (lambda h, a: decoupled(h, a, alpha=1, beta=0), {}, "tckd", 1e-9),
    "dkd##": (lambda h, a: decoupled(h, a, alpha=0, beta=1), {}, "nckd", 1e-9),
    "er_ace#": (lambda h, a: losses.asymmetric_cross_entropy(a["logits"], a["label"]), {}, "loss_paper", 1e-9),
    "er_ace##": (
        lambda h, a: F.cross_entropy(a["logits_buf"], a["label_buf"]), {"logits_buf": "grad_buf"}, "loss_buf", 1e-9,
    ),
    "co2l_ird#": (lambda h, a: relations(h, a) * len(a["raw_cur"]), {}, "loss_paper_sum", 1e-9),
    "cclis_prd#": (lambda h, a: prototype_relations(h, a).double(), {}, "loss_oracle", 1e-6),
    "lstkc_rskt#": (
        lambda h, a: rskt(h, a, detach_target=True), {"feat_new": "grad_target_detached"}, "loss", 1e-9,
    ),
    "dkp_pkt#": (
        lambda h, a: transfer(h, a, detach_target=True), {"feat": "grad_target_detached"}, "loss", 1e-9,
    ),
}  # fmt: skip
# Where the official value or gradient is NaN, the files of these losses check the right one.
BROKEN = [
    "dwpp_T10_underflow_f32",
    *(name for name in golden_names("co2l_asymsupcon") if load_golden(name)[1]["loss"].isnan()),
]


@pytest.mark.parametrize(
    ("key", "name"),
    [(key, name) for key in CASES for name in golden_names(key.rstrip("#")) if name not in BROKEN],
)  # fmt: skip
def test_losses_equal_golden_cases(key: str, name: str) -> None:
    call, gradients, value, tolerance = CASES[key]
    hyper, arrays = load_golden(name)
    for trained in gradients:
        arrays[trained].requires_grad_()
    loss = call(hyper, arrays)
    torch.testing.assert_close(loss.detach(), arrays[value], rtol=tolerance, atol=min(1e-12, tolerance * 1e-2))
    if not gradients:
        return
    loss.backward()
    for trained, gradient in gradients.items():
        given, expected = arrays[trained].grad, arrays.get(gradient, torch.zeros_like(arrays[trained]))
        given = torch.zeros_like(expected) if given is None else given
        largest = expected.abs().max().item()
        torch.testing.assert_close(given, expected, rtol=tolerance, atol=1e-9 * largest + tolerance * 1e-2)


def test_every_golden_case_is_named_by_a_test() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in GOLDEN.parent.rglob("*.py"))
    starts = set(re.findall(r'"(\w+)', tests))
    for name in golden_names():
        words = name.split("_")
        assert starts & {"_".join(words[:count]) for count in range(1, len(words) + 1)}, name
