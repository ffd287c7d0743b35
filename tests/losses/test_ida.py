import pytest
import torch
from oracles import distance, draw, floored_kl, softmax

from lreid.losses import discriminant_alignment_loss


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_loss_matches_loops(metric, temperature, prob_floor, count):
    student, teacher, anchors = (
        draw(*shape, seed=n, scale=0.7) for n, shape in enumerate([(6, 4), (6, 4), (count, 4)])
    )
    options = {"temperature": temperature, "prob_floor": prob_floor, "metric": metric}
    loss = discriminant_alignment_loss(student, teacher, anchors, **options)
    expected = 0.0
    for new, old in zip(student.tolist(), teacher.tolist(), strict=True):
        q, p = (
            softmax([-distance(row, anchor, metric) for anchor in anchors.tolist()], temperature) for row in (new, old)
        )
        expected += floored_kl(p, q, prob_floor)
    assert loss.item() == pytest.approx(expected / 6, rel=1e-9, abs=1e-14)


def test_features_far_from_anchors_are_free():
    # The old classes differ in the first dimension only: alignment leaves the others to the new task.
    anchors = torch.zeros(3, 4, dtype=torch.float64)
    anchors[:, 0] = torch.tensor([-1.0, 0.0, 2.0])
    teacher, student = draw(6, 4), draw(6, 4)
    student[:, 1:] += draw(6, 3, seed=3)
    assert discriminant_alignment_loss(student, teacher, anchors).item() == pytest.approx(0, abs=1e-12)
    student[:, 0] += 0.5
    assert discriminant_alignment_loss(student, teacher, anchors) > 0.01
