"""Every golden case says what its arrays are and where they came from, as CONTRIBUTING.md asks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from oracles import GOLDEN, golden_names


def test_every_description_has_its_arrays() -> None:
    described, stored = ({path.stem for path in GOLDEN.glob(f"*.{suffix}")} for suffix in ("json", "npz"))
    assert described == stored and len(stored) > 50


@pytest.mark.parametrize("name", golden_names())
def test_the_description_is_true(name: str) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert name == f"{case['loss']}_{case['case']}"
    assert case["source"] and case["torch"] and case["numpy"] and isinstance(case["hyper"], dict)
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        found = {key: [list(value.shape), str(value.dtype)] for key, value in arrays.items()}
    assert found == {key: [each["shape"], each["dtype"]] for key, each in case["arrays"].items()}
