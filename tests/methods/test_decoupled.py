"""The ablation of Table 3 meets DwoPP and DwPP at its ends."""

import pytest
from family import TASK, batches, model, train

from lreid.methods import build_method


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
