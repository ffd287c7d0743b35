"""A-GEM: its gradient is the projected one."""

import copy

import pytest
import torch
from family import task_of
from test_er import learn, new, segments
from torch import Tensor


def flat(method: object, loss: Tensor) -> Tensor:
    """The gradient of all parameters in one row, in float64."""
    parameters = list(method.parameters())
    parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([part.double().flatten() for part in parts])


@pytest.mark.parametrize("against", [True, False])
def test_gradient_equals_equation_11(against: bool) -> None:
    method = new("a_gem", exemplars=20)
    learn(method, 1)
    method.begin_task(task_of(1))
    method.model.eval()  # so that the losses can be had twice
    (batch, *_) = segments(1)
    method.replay = 20
    twin = copy.deepcopy(method)
    incoming, stored = twin.incoming_loss(batch), twin.replay_loss(twin.read(twin.memory.draw(20)))
    g, r = flat(twin, incoming), flat(twin, stored)
    sign = -1.0 if (g @ r < 0) != against else 1.0  # learn or unlearn the new images, whichever is wanted
    if sign < 0:
        plain = type(method).incoming_loss
        method.incoming_loss = lambda batch: -plain(method, batch)
    g = sign * g
    expected = g - (g @ r) / (r @ r) * r if against else g
    assert (g @ r < 0) == against
    found = flat(method, method.total(method.loss(batch)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not against or abs(found @ r) < 1e-4 * found.norm() * r.norm()


def test_current_images_are_not_a_reference() -> None:
    method = new("a_gem", exemplars=20)
    assert all(set(terms) == {"incoming"} for terms in learn(method, 1))
    assert all(set(terms) == {"incoming", "replay"} for terms in learn(method, 2, first=1))
