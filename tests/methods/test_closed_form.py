"""Controls without gradients: statistics of frozen features, against loops in float64."""

from pathlib import Path

import pytest
import torch
from family import DIM, model
from synthetic_tasks import synthetic_task
from tiny import FEW, tiny_config
from torch import Tensor

import lreid
from lreid.methods import build_method
from lreid.methods.ranpac import RIDGES
from lreid.methods.simple_cil import SimpleCIL
from lreid.training.run import train

LABELS = torch.arange(6).repeat_interleave(4)


def learned(name: str, **options: float) -> tuple[SimpleCIL, Tensor]:
    """A method after two tasks of three classes each, and all features."""
    method = build_method(name, model(), **options)
    features = torch.randn(24, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for part in (slice(12), slice(12, 24)):
        method.learn(features[part], LABELS[part])
    return method, features


def within(name: str, found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item(), msg=name)


def test_simple_cil_scores_are_cosines_with_class_means() -> None:
    method, features = learned("simple_cil")
    for row, scores in zip(features, method.class_scores(features), strict=True):
        for label in range(6):
            mean = sum(features[4 * label + k] for k in range(4)) / 4
            assert scores[label].item() == pytest.approx((row @ mean / row.norm() / mean.norm()).item())


def test_fecam_features_give_mahalanobis_distances() -> None:
    method, features = learned("fecam", power=0.5, shrink_variance=0.5, shrink_covariance=0.25)
    rows = [torch.tensor([abs(x) ** 0.5 * (1 if x > 0 else -1) for x in row.tolist()]).double() for row in features]
    rows = [row / sum(x * x for x in row) ** 0.5 for row in rows]
    means = [sum(rows[4 * label + k] for k in range(4)) / 4 for label in range(6)]
    covariance = torch.zeros(DIM, DIM, dtype=torch.float64)
    for row, label in zip(rows, LABELS.tolist(), strict=True):
        inner = row - means[label]
        for i in range(DIM):
            for j in range(DIM):
                covariance[i, j] += inner[i] * inner[j] / 24
    variance = sum(covariance[i, i] for i in range(DIM)) / DIM
    other = sum(covariance[i, j] for i in range(DIM) for j in range(DIM) if i != j) / (DIM * (DIM - 1))
    for i in range(DIM):
        for j in range(DIM):
            covariance[i, j] += 0.5 * variance if i == j else 0.25 * other
    deviations = covariance.diagonal().sqrt()
    inverse = torch.linalg.inv(covariance / torch.outer(deviations, deviations))
    transformed = method.transform(features.float())
    wanted = torch.tensor([[(a - b) @ inverse @ (a - b) for b in rows] for a in rows])
    within("distances", torch.cdist(transformed, transformed).square(), wanted.double())
    wanted = torch.tensor([[-(a - b) @ inverse @ (a - b) for b in means] for a in rows])
    within("scores", method.class_scores(transformed), wanted.double())


def test_ranpac_scores_equal_ridge_regression() -> None:
    method, features = learned("ranpac", width=20, ridge=0.5)
    weights = method.transform.projection.double()
    rows = [torch.tensor([max((row @ weights[:, k]).item(), 0.0) for k in range(20)]).double() for row in features]
    gram, products = torch.zeros(20, 20, dtype=torch.float64), torch.zeros(20, 6, dtype=torch.float64)
    for row, label in zip(rows, LABELS.tolist(), strict=True):
        gram += torch.outer(row, row)
        products[:, label] += row
    inverse = torch.linalg.inv(gram + 0.5 * torch.eye(20))
    transformed = method.transform(features.float())
    within("products", transformed @ transformed.T, torch.stack(rows) @ inverse @ torch.stack(rows).T)
    within("scores", method.class_scores(transformed), torch.stack(rows) @ inverse @ products)


def test_ranpac_chooses_the_ridge_with_the_smallest_error() -> None:
    method, features = learned("ranpac", width=20)
    rows, targets = method.transform.expand(features), torch.nn.functional.one_hot(LABELS).double()
    state = method.generator.get_state()
    chosen = method.chosen_ridge(rows, targets)
    method.generator.set_state(state)
    order = torch.randperm(24, generator=method.generator)
    errors = []
    for ridge in RIDGES:
        seen, held = rows[order[:19]], rows[order[19:]]
        solved = torch.linalg.solve(seen.T @ seen + ridge * torch.eye(20), seen.T @ targets[order[:19]])
        errors.append((held @ solved - targets[order[19:]]).square().mean().item())
    assert errors[RIDGES.index(chosen)] == pytest.approx(min(errors), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "statistics"),
    [("simple_cil", {}, "means"), ("fecam", {}, "means"), ("ranpac", {"width": 20}, "gram")],
)
def test_closed_form_methods_leave_the_network_unchanged(name: str, options: dict, statistics: str) -> None:
    method = build_method(name, model(), **options)
    before = {key: each.clone() for key, each in method.model.backbone.state_dict().items()}
    method.finish_task(synthetic_task(0))
    other = build_method(name, model(), **options)
    other.transform = getattr(method, "transform", None)
    plain = torch.from_numpy(model().extract([record.path for record in synthetic_task(0).records])).double()
    other.learn(plain, torch.tensor([record.pid for record in synthetic_task(0).records]))
    torch.testing.assert_close(getattr(other, statistics), method.state_dict()[statistics])
    assert all(torch.equal(each, before[key]) for key, each in method.model.backbone.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dim"), [("fecam", 16), ("ranpac", 20)])
def test_checkpoint_includes_the_transform(name: str, dim: int, tmp_path: Path) -> None:
    width = {"METHOD.WIDTH": 20} if name == "ranpac" else {}
    results = train(tiny_config(FEW, width, METHOD__NAME=name), tmp_path / "run")
    found = lreid.load_model(tmp_path / "run")
    features = found.extract([record.path for record in synthetic_task(0).records])
    assert found.dim == features.shape[1] == dim and not torch.equal(found.neck.matrix, torch.eye(dim))
    assert results["stored"]["domain"] == 8 * dim**2 and results["stored"]["templates"] == 1
