"""The arguments of a benchmark without anything special, for tests that are about one of them."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {
    "unseen": [],
    "root": "datasets",
    "tasks_per_dataset": 1,
    "pool": False,
    "identities": 0,
    "order": "ascending",
    "order_seed": 0,
    "unseen_galleries": "separate",
    "splits": 1,
    "split_seed": 0,
    "cameras": "apart",
    "synthetic": {},
}
