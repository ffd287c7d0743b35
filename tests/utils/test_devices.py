"""How torch is told to compute, and that it is as it was after that."""

import pytest
import torch

from lreid.utils.devices import computing


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_a_run_sets_ends_with_it(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pytest.raises(KeyError), computing(rounded=False, deterministic=deterministic):
        assert torch.are_deterministic_algorithms_enabled() == deterministic
        torch.backends.cudnn.benchmark = True
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
