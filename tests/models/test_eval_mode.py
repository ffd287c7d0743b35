"""Networks that are in evaluation mode for a while."""

import pytest
import torch

from lreid.models import bn_neck, evaluating


@pytest.mark.parametrize("training", [True, False])
def test_a_neck_goes_by_its_running_statistics_and_comes_back(training: bool) -> None:
    neck = bn_neck(3).train(training)
    neck.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    features = torch.randn(4, 3)
    with evaluating(neck):
        seen = neck(features)
    torch.testing.assert_close(seen, (features - torch.tensor([1.0, 2.0, 3.0])) / (1 + neck.eps) ** 0.5)
    assert neck.training == training
    assert neck.running_mean.equal(torch.tensor([1.0, 2.0, 3.0]))


def test_an_error_leaves_the_mode_as_it_was() -> None:
    neck = bn_neck(3)
    with pytest.raises(RuntimeError, match="running_mean"), evaluating(neck):
        neck(torch.zeros(2, 4))
    assert neck.training


def test_the_shift_of_a_neck_is_not_learned() -> None:
    neck = bn_neck(3)
    assert [name for name, each in neck.named_parameters() if each.requires_grad] == ["weight"]
    assert neck.bias.equal(torch.zeros(3))
