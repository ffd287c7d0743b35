"""A benchmark whose arguments are named like the keys of a config, for tests that are about one of them."""

from dataclasses import fields
from typing import Any

from lreid.data.datasets import Sources
from lreid.data.records import Benchmark
from lreid.data.tasks import Cut, Learned, Unseen, build_benchmark


def plain(*, train: list[str], **changes: Any) -> Benchmark:
    """The benchmark with these changes to the defaults; unseen data sets are tested by their first split."""
    unseen = Unseen(changes.pop("unseen", ()), changes.pop("unseen_galleries", "separate"), changes.pop("splits", 1))
    learned = Learned(changes.pop("learned", ()), changes.pop("learned_identities", 0))
    sources = Sources(**{field.name: changes.pop(field.name) for field in fields(Sources) if field.name in changes})
    return build_benchmark("bench", train, unseen=unseen, learned=learned, cut=Cut(**changes), sources=sources)
