"""The DMML family: terms, teachers and limits."""

import re

import numpy as np
import pytest
import torch
from family import DIM, TASK, assert_terms, batches, model, train
from synthetic_tasks import learn, synthetic_task

from lreid import methods
from lreid.errors import ArgumentError
from lreid.losses import discriminant_alignment_loss, dmml_loss, dwopp_loss, dwpp_loss
from lreid.methods import build_method, method_class, method_defaults, method_names, method_rules
from lreid.models import Embedder


def test_first_task_equals_dmml() -> None:
    histories = [train(build_method(name, model()), batches(3)) for name in ("dmml_ft", "dwpp", "dwopp")]
    assert all(history == histories[0] for history in histories)
    assert set(histories[0][0]) == {"dmml"}


@pytest.mark.parametrize(("name", "loss"), [("dwpp", dwpp_loss), ("dwopp", dwopp_loss)])
def test_terms_are_losses_of_student_and_teacher(name: str, loss: object) -> None:
    method = build_method(name, model(), temperature=2.0, margin=0.3, distillation_weight=0.7)
    train(method, batches(2))
    method.end_task(TASK)
    train(method, batches(2, seed=2))
    (batch,) = batches(1, seed=3)
    terms = method.loss(batch)
    student, teacher = method.model(batch.images), method.teacher(batch.images)
    assert not torch.allclose(student, teacher)
    distill = loss(student, teacher, batch.labels, 2, temperature=2.0)
    assert_terms(terms, 1e-6, dmml=dmml_loss(student, batch.labels, 2, margin=0.3), distill=distill)
    assert method.weights == {"distill": 0.7}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "name"), [({"alpha": 0.0, "beta": 1.0}, "dwopp"), ({"alpha": 1.0, "beta": -1.0}, "dwpp")]
)
def test_decoupled_special_cases_are_dwopp_and_dwpp(options: dict, name: str) -> None:
    """Step by step over two tasks, the floor of the others set to 0."""
    method = build_method("decoupled", model(), **options)
    other = build_method(name, model(), temperature=1.0, prob_floor=0.0)
    for seed in range(2):
        histories = [train(each, batches(4, seed=seed)) for each in (method, other)]
        for one, two in zip(*histories, strict=True):
            assert one == pytest.approx(two, rel=1e-4, abs=1e-7)
        method.end_task(TASK), other.end_task(TASK)
    assert "distill" in one and one["distill"] > 0


def test_ida_anchors_are_fixed_class_means() -> None:
    method = build_method("ida", model())
    expected = []
    for index in range(3):
        task = synthetic_task(index)
        assert method.anchors.shape == (4 * index, DIM)
        train(method, batches(2, seed=index, first_class=4 * index))
        method.end_task(task)
        for label in task.classes:
            own = [record.path for record in task.records if record.pid == label]
            assert len(own) == 3
            expected.append(method.model.extract(own).mean(0))
    np.testing.assert_allclose(method.anchors.numpy(), np.stack(expected), rtol=1e-4, atol=1e-5)
    assert method.exemplars == 0


def test_ida_term_covers_all_anchors() -> None:
    method = build_method("ida", model(), temperature=3.0, prob_floor=0.01)
    learn(method, 2, exemplars=False)
    (batch,) = batches(1, seed=9, first_class=8)
    method.model.train()
    terms = method.loss(batch)
    student, teacher = method.model(batch.images), method.teacher(batch.images)
    expected = discriminant_alignment_loss(student, teacher, method.anchors, temperature=3.0, prob_floor=0.01)
    assert len(method.anchors) == 8 and terms["distill"].item() == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dwop", {}, "name 'dwop' is no method; the nearest name is dwopp"),
        ("dwopp", {"temprature": 1.0}, "temprature is no option of dwopp; the nearest name is temperature"),
        ("dmml_ft", {"temperature": 1.0}, "temperature is no option of dmml_ft; "),
        ("dwopp", {"temperature": "hot"}, "temperature is 'hot'; it must be like 1.0 for dwopp"),
        ("dwopp", {"clamp": 1}, "clamp is 1; it must be like True"),
        ("dwopp", {"metric": "manhattan"}, "metric is 'manhattan'; it must be sqeuclidean or euclidean or cosine"),
    ],
)
def test_bad_options_are_refused_by_name(name: str, options: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build_method(name, model(), **options)


BEYOND: dict[str, dict[str, object]] = {  # limits that no rule of an option states
    "bot_ft": {"exemplars": -1, "exemplar_mib": -1.0},
    "cclis": {"selection": "herding", "distillation": "relations"},
    "co2l": {"distillation": "relations"},
    "er": {"exemplars": -1},
    "erd": {"selection": "importance"},
    "gdumb": {"passes": 0, "batch": 0, "least_rate": 1.0},
}


@pytest.mark.parametrize("name", BEYOND)
def test_options_have_limits(name: str) -> None:
    for option, value in BEYOND[name].items():
        with pytest.raises(ArgumentError, match=f"^{option} is {value!r}; it must be "):
            build_method(name, model(neck=method_class(name).neck), **{option: value})


@pytest.mark.parametrize("name", method_names())
def test_values_beyond_the_limits_of_an_option_are_refused(name: str) -> None:
    defaults, rules = method_defaults(method_class(name)), method_rules(method_class(name))
    assert all(rule.fault(defaults[option]) == "" for option, rule in rules.items())
    beyond: dict[str, list[object]] = {
        option: [float("nan")] for option, value in defaults.items() if isinstance(value, float)
    }
    for option, rule in rules.items():
        numbers = [(rule.least, -1), (rule.most, 1), (rule.above, 0), (rule.below, 0)]
        beyond.setdefault(option, []).extend(limit + step for limit, step in numbers if limit is not None)
        beyond[option] += ["another"] * bool(rule.choices)
    for option, values in beyond.items():
        for value in map(type(defaults[option]), values):
            with pytest.raises(ArgumentError, match=f"^{option} is {re.escape(repr(value))}; it must be "):
                build_method(name, model(), **{option: value})


def test_custom_method_declares_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_registered", {})

    @methods.register("plain")
    class Plain(methods.Method):
        def __init__(self, model: Embedder) -> None:
            super().__init__(model)

    @methods.register("strict")
    class Strict(methods.Method):
        def __init__(self, model: Embedder, *, strength: float) -> None:
            super().__init__(model)

    with pytest.raises(ArgumentError, match="strength is no option of plain; it takes none"):
        build_method("plain", model(), strength=1.0)
    with pytest.raises(ArgumentError, match="strength of Strict has no default"):
        build_method("strict", model(), strength=1.0)
