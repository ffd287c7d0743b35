"""GEM: its quadratic program against all active sets, and the gradient of its loss."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_er import flat, learn, new, segments, task_of

from lreid.methods.gem import RIDGE, smallest_weights


def by_active_sets(gram: np.ndarray, products: np.ndarray, margin: float) -> np.ndarray:
    """The minimum over all choices of the weights that are at their lowest value."""
    matrix, best = gram + RIDGE * np.eye(len(gram)), (np.inf, np.zeros(len(gram)))
    for lowest in product([True, False], repeat=len(gram)):
        low, free = np.flatnonzero(lowest), np.flatnonzero(~np.array(lowest))
        weights = np.full(len(gram), margin)
        fixed = products[free] + matrix[np.ix_(free, low)] @ weights[low]
        weights[free] = np.linalg.solve(matrix[np.ix_(free, free)], -fixed)
        if (weights >= margin - 1e-9).all():
            best = min(best, (0.5 * weights @ matrix @ weights + products @ weights, weights), key=lambda pair: pair[0])
    return best[1]


@given(st.integers(1, 5), st.integers(0, 999), st.sampled_from([0.0, 0.5]))
def test_weights_solve_the_quadratic_program(tasks: int, seed: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    gradients, g = rng.normal(size=(tasks, 7)), rng.normal(size=7)
    gram, products = gradients @ gradients.T, gradients @ g
    found = smallest_weights(gram, products, margin)
    if (products >= 0).all():
        assert (found == 0).all()
        return
    np.testing.assert_allclose(found, by_active_sets(gram, products, margin), rtol=1e-4, atol=1e-5)
    if margin == 0:
        assert (gradients @ (g + found @ gradients) > -0.02).all()  # opposes no past task, up to the ridge


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradient_is_changed_by_those_of_all_past_tasks(sign: float) -> None:
    method = new("gem", exemplars=30)
    histories = [learn(method, tasks, first=tasks - 1) for tasks in (1, 2)]
    assert all(set(terms) == {"incoming"} for terms in histories[0]) and "replay" in histories[1][0]
    method.begin_task(task_of(2))
    method.model.eval()  # so that losses can be computed twice
    (batch, *_) = segments(2)
    plain = type(method).incoming_loss
    method.incoming_loss = lambda batch: sign * plain(method, batch)
    twin = copy.deepcopy(method)
    old = []
    for task in range(2):
        rows = np.flatnonzero(twin.memory.labels // 4 == task)
        assert len(rows) > 6  # the entire memory, not as many as come in
        old.append(flat(twin, twin.replay_loss(twin.read(rows))))
    g, old = sign * flat(twin, plain(twin, batch)), torch.stack(old)
    weights = torch.from_numpy(smallest_weights((old @ old.T).numpy(), (old @ g).numpy(), 0.5))
    assert ((old @ g).min() < 0) == bool(weights.any())
    found = flat(method, method.total(method.loss(batch)))
    torch.testing.assert_close(found, g + weights @ old, rtol=1e-3, atol=1e-5)
