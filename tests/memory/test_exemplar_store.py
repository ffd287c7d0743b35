"""What both memories share: pixels or paths, extras, sizes."""

from collections.abc import Callable

import numpy as np
import pytest

from lreid.data.images import read_image
from lreid.memory import ExemplarMemory, ExemplarStore, ImagePaths, StreamMemory, budget_of

PATHS = [f"synthetic:plaza/0/{identity}/{shot}/{shot}" for identity in range(4) for shot in (1, 2, 3)]
LABELS = np.repeat(np.arange(4), 3)
PIXELS = np.stack([read_image(path, height=16, width=8) for path in PATHS])


def tasks(images: np.ndarray | ImagePaths) -> ExemplarMemory:
    memory = ExemplarMemory(5, seed=1)
    for rows in (slice(0, 6), slice(6, 12)):
        chosen = ImagePaths(images.paths[rows], 16, 8) if isinstance(images, ImagePaths) else images[rows]
        memory.add(chosen, LABELS[rows], PIXELS[rows].reshape(6, -1).astype(np.float32))
    return memory


def stream(images: np.ndarray | ImagePaths) -> StreamMemory:
    memory = StreamMemory(5, seed=1)
    for start in range(0, 12, 4):
        rows = slice(start, start + 4)
        chosen = ImagePaths(images.paths[rows], 16, 8) if isinstance(images, ImagePaths) else images[rows]
        memory.add(chosen, LABELS[rows])
    return memory


@pytest.mark.parametrize("fill", [tasks, stream])
def test_paths_and_pixels_give_equal_images(fill: Callable[..., ExemplarStore]) -> None:
    pixels, paths = fill(PIXELS), fill(ImagePaths(PATHS, 16, 8))
    assert isinstance(pixels.images, np.ndarray) and isinstance(paths.images, ImagePaths)
    assert len(pixels) == len(paths) >= 4 and np.array_equal(pixels.labels, paths.labels)
    rows = np.array([3, 0, 3])
    assert np.array_equal(paths.images[rows], pixels.images[rows])
    assert np.array_equal(np.stack(list(paths.images)), pixels.images)
    assert np.array_equal(paths.images[paths.labels == 1], pixels.images[pixels.labels == 1])
    assert pixels.nbytes == len(pixels) * 16 * 8 * 3
    assert paths.nbytes == sum(len(path) for path in paths.images.paths)
    other = type(paths)(5)
    other.load_state_dict(paths.state_dict())
    assert other.images.paths == paths.images.paths and np.array_equal(other.images[:], pixels.images)


def test_file_names_may_be_undecodable() -> None:
    memory = StreamMemory(5, seed=1)
    memory.add(ImagePaths(["caf\udce9.png"], 16, 8), LABELS[:1])
    assert memory.nbytes == 8  # the byte that is no text counts once


def test_empty_paths_give_empty_pixels() -> None:
    assert ImagePaths(PATHS, 16, 8)[np.array([], int)].shape == (0, 16, 8, 3)


def test_mixed_kinds_and_sizes_are_refused() -> None:
    memory = stream(PIXELS)
    with pytest.raises(ValueError, match="either pixels or paths"):
        memory.add(ImagePaths(PATHS, 16, 8), LABELS)
    for wrong in (PIXELS[:, :8], PIXELS.astype(np.float32)):
        with pytest.raises(ValueError, match=r"images must be uint8 \(16, 8, 3\), got"):
            StreamMemory.add(memory, wrong, LABELS)


def test_shorter_extras_are_padded_with_nan() -> None:
    memory = StreamMemory(5, "fifo")
    memory.add(PIXELS[:2], LABELS[:2], logits=np.float32([[1, 2], [3, 4]]))
    memory.add(PIXELS[2:4], LABELS[2:4], logits=np.float32([[5, 6, 7], [8, 9, 0]]), task=np.array([1, 1]))
    memory.add(PIXELS[4:6], LABELS[4:6])  # without; drives out the first
    extras, order = memory.extras, memory.extras["numbers"].argsort()
    assert extras["logits"].dtype == np.float32 and extras["task"].dtype == np.float64
    none = [np.nan] * 3
    assert np.array_equal(extras["logits"][order], [[3, 4, np.nan], [5, 6, 7], [8, 9, 0], none, none], equal_nan=True)
    assert np.array_equal(extras["task"][order], [np.nan, 1, 1, np.nan, np.nan], equal_nan=True)
    extras["task"][order[0]] = 7
    assert memory.extras["task"][order[0]] == 7


def test_smaller_of_two_budgets_applies() -> None:
    assert budget_of(500, 0.0, height=64, width=32) == 500
    assert budget_of(500, 1.0, height=64, width=32) == 2**20 // (64 * 32 * 3) == 170
    assert budget_of(100, 1.0, height=64, width=32) == 100
    assert budget_of(100, 0.001, height=64, width=32) == 0


def test_state_beyond_the_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="the state holds 5 images, the budget is 4"):
        StreamMemory(4).load_state_dict(stream(PIXELS).state_dict())
