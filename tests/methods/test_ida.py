"""IDA: anchors that stay, the alignment to them, and DMML-FT without its weight."""

import numpy as np
import pytest
from family import DIM, batches, model, train
from synthetic_tasks import learn, synthetic_task

from lreid.losses import discriminant_alignment_loss
from lreid.methods import build_method


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
