"""What every method has: exemplars and their options, a teacher, hooks."""

import numpy as np
from family import model
from synthetic_tasks import synthetic_task

from lreid.memory import ImagePaths
from lreid.methods import Method, build_method


def after_two_tasks(**options: object) -> Method:
    method = build_method("bot_ft", model(neck=True), **{"exemplars": 500} | options)
    for index in range(2):
        method.begin_task(synthetic_task(index))
        method.end_task(synthetic_task(index))
    return method


def test_stored_paths_are_those_of_the_selected_images() -> None:
    images, paths = (after_two_tasks(exemplars=17, store=store).memory for store in ("images", "paths"))
    assert isinstance(images.images, np.ndarray) and isinstance(paths.images, ImagePaths)
    assert len(images) == 16 and np.array_equal(images.labels, paths.labels)
    assert np.array_equal(images.images, paths.images[:])


def test_budget_in_mib_counts_pixels() -> None:
    room = 10.5 * 32 * 16 * 3 / 2**20
    for store in ("images", "paths"):
        method = after_two_tasks(exemplar_mib=room, least_images=1, store=store)
        assert method.memory.budget == 10 and method.exemplars == 8
    assert after_two_tasks(exemplar_mib=room, exemplars=4).memory.budget == 4


def test_filled_memory_uses_the_whole_budget() -> None:
    method = after_two_tasks(exemplars=19, fill_memory=True)
    assert sorted(np.bincount(method.memory.labels)) == [2] * 5 + [3] * 3
