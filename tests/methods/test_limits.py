"""What every method is without what it adds, and what all of them keep: one row per method."""

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import family
import fusing
import numpy as np
import pytest
import synthetic_tasks
import test_co2l
import test_er
import torch
from family import model

from lreid.methods import Method, build_method, method_class, method_defaults, method_names

Learn = Callable[[Method, int], list[dict[str, float]]]
OWN, STORED = partial(synthetic_tasks.learn, exemplars=False), partial(synthetic_tasks.learn, exemplars=True)
NONE: dict[str, Any] = {"distillation_weight": 0.0}
HALF: dict[str, Any] = {"fusion": 0.5, "measured_fusion": False}


def built(name: str, **options: Any) -> Method:
    torch.manual_seed(3)
    return build_method(name, model(neck=method_class(name).neck), **options)


# The method and its options, the base and its options, the tasks that both learn. Each loss term of the base must be
# in those of the method, bit for bit, in every step.
LIMITS: list[tuple[str, dict[str, Any], str, dict[str, Any], Learn]] = [
    ("aka", NONE | {"vertices": 5, "plasticity_share": 0.0, "stability_weight": 0.0}, "bot_ft", {}, family.learn),
    ("aka", {"vertices": 5, "plasticity_share": 0.0, "stability_weight": 0.0, "distillation_weight": 0.7},
     "lwf", {"distillation_weight": 0.7}, family.learn),
    ("lwf", NONE, "bot_ft", {}, family.learn),
    ("lwf", NONE | {"exemplars": 500}, "bot_ft", {"exemplars": 500}, STORED),
    *((name, {"strength": 0.0}, "bot_ft", {}, OWN) for name in ("ewc", "mas", "si")),
    ("pass_proto", NONE | {"prototype_weight": 0.0, "rotate": False}, "bot_ft", {}, OWN),
    ("patch_kd", dict.fromkeys(("patch_weight", "relation_weight", "confidence_weight", "diversity_weight"), 0.0),
     "lwf", {}, fusing.learn),
    ("dwpp", NONE, "dmml_ft", {}, OWN),
    ("dwopp", NONE, "dmml_ft", {}, OWN),
    ("ida", NONE, "dmml_ft", {}, OWN),
    ("dmml_ird", NONE, "dmml_ft", {}, OWN),
    ("dmml_ird", NONE | {"exemplars": 500}, "dmml_ft", {"exemplars": 500}, STORED),
    ("erd", {"exemplars": 0}, "dmml_ft", {}, OWN),
    ("co2l", NONE, "co2l", {"distillation": "none"}, test_co2l.learned),
    ("cclis", NONE, "cclis", {"distillation": "none"}, synthetic_tasks.learn_replayed),
    ("lstkc", NONE | HALF, "fused_ft", HALF | {"normalize_triplet": True}, fusing.learn),
    ("lstkc_pp", NONE | HALF, "fused_ft", HALF, fusing.learn),
    ("dask", NONE | {"rehearsal_weight": 0.0}, "fused_ft", {}, fusing.learn),
    ("dkp_pp", {"transfer_weight": 0.0, "rehearsal": False}, "dkp", {"transfer_weight": 0.0}, fusing.learn),
    ("er", {"replay_weight": 0.0}, "er", {"exemplars": 0}, test_er.learn),
    ("er_ace", {"replay_weight": 0.0}, "er_ace", {"exemplars": 0}, test_er.learn),
    ("der", {"exemplars": 9, "logit_weight": 0.0}, "er", {"exemplars": 0}, test_er.learn),
    ("a_gem", {"exemplars": 0}, "er", {"exemplars": 0}, test_er.learn),
    ("gem", {"exemplars": 0}, "er", {"exemplars": 0}, test_er.learn),
    ("gss", {"exemplars": 0}, "er", {"exemplars": 0}, test_er.learn),
    ("fdr", {"exemplars": 9, "logit_weight": 0.0}, "er", {"exemplars": 0}, test_er.learn),
]  # fmt: skip


@cache
def learned(base: str, options: tuple[tuple[str, Any], ...], learn: Learn) -> list[dict[str, float]]:
    return learn(built(base, **dict(options)), 3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "base", "base_options", "learn"), LIMITS)
def test_method_with_weights_0_equals_its_baseline(
    name: str, options: dict[str, Any], base: str, base_options: dict[str, Any], learn: Learn
) -> None:
    history = learn(built(name, **options), 3)
    fusing.same_parts(learned(base, tuple(base_options.items()), learn), history)
    assert len(history) == 9 and ("distill" in history[-1] or "distillation_weight" not in options)


PAST = ("teacher", "old_", "prototypes")  # what a method keeps of the tasks before
TEACHERS = [name for name in method_names() if method_class(name).keeps_teacher]


@pytest.mark.parametrize("name", TEACHERS)
def test_teacher_is_the_frozen_network_of_the_previous_task(name: str) -> None:
    short = {"style_steps": 1, "style_batch": 2} if name in ("dask", "dkp_pp") else {}
    method = built(name, **short)
    fusing.learn(method, 1)
    kept = {key: part for key, part in method.state_dict().items() if key.startswith(PAST) and part is not None}
    assert "teacher" in kept
    before = copy.deepcopy(kept)
    network = method.teacher.model if hasattr(method.teacher, "model") else method.teacher
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, method.model.state_dict()[key], rtol=0, atol=0)
    method.begin_task(synthetic_tasks.synthetic_task(1))
    family.train(method, fusing.steps_of(1))
    assert not method.teacher.training and not any(each.requires_grad for each in method.teacher.parameters())
    after = {key: part for key, part in method.state_dict().items() if key in kept}
    torch.testing.assert_close(after, before, rtol=0, atol=0)  # BatchNorm statistics too
    assert not torch.equal(next(method.model.parameters()), next(network.parameters()))


PUBLISHED = {"aka": {"plasticity_share": 1.0}, "dkp": {"relation_temperature": 0.1, "temperature": 0.1}}
WEIGHTS = {
    "aka": {"triplet": 0.0, "plasticity": 1.0, "stability": 5e-4, "distill": 1.0},
    "der_pp": {"replay": 0.5, "logits": 0.1},
    "dkp_pp": {"triplet": 1.5, "triplet_rehearsed": 1.5},
    "patch_kd": {"distill": 1.0, "patch_distill": 0.1, "relations": 100.0, "confidence": 1.0, "diversity": 0.5},
}


@pytest.mark.parametrize("name", sorted(PUBLISHED | WEIGHTS))
def test_default_options_are_the_published_ones(name: str) -> None:
    """Of options that ``tests/test_recipes.py`` does not compare."""
    defaults, wanted = method_defaults(method_class(name)), PUBLISHED.get(name, {})
    assert {key: defaults[key] for key in wanted} == wanted
    found, wanted = built(name).weights, WEIGHTS.get(name, {})
    assert {key: found.get(key) for key in wanted} == wanted


REID: dict[str, Any] = {"exemplars": 20, "reid_head": True}
HEADS: dict[str, tuple[dict[str, Any], int]] = {  # options, and the task from which rows are no draws
    "er": (REID, 0), "er_aml": (REID, 0), "fused_ft": ({}, 1), "retrace": ({}, 0)
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_initial_rows_are_mean_directions(name: str) -> None:
    options, first = HEADS[name]
    method = built(name, **options)
    for index in (0, 1):
        old, task = method.classifier.weight.detach().clone(), synthetic_tasks.synthetic_task(index)
        method.begin_task(task)
        rows = method.classifier.weight.detach()
        assert name == "retrace" or rows[: 4 * index].equal(old)  # which keeps none
        features = method.model.extract([record.path for record in task.records]).astype(np.float64)
        for row, label in zip(rows[-4:].numpy(), task.classes if index >= first else (), strict=index >= first):
            mean = features[[record.pid == label for record in task.records]].mean(0)
            np.testing.assert_allclose(row, mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-6)
        with torch.no_grad():
            method.classifier.weight += 1  # learned
        method.end_task(task)
