"""GSS: scores against gradients of single images, and the greedy memory against its algorithm."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import task_of
from test_er import flat, new, segments

from lreid.memory import StreamMemory


def test_scores_are_the_largest_cosines_of_gradients() -> None:
    method = new("gss", exemplars=12, compared=12)
    method.begin_task(task_of(0))
    first, second, _ = segments(0)
    method.model.train()
    for batch in (first, second):
        method.loss(batch)
    method.end_step(first)
    assert method.memory.extras["scores"].tolist() == [0.1] * 6
    before = {key: value.clone() for key, value in method.model.state_dict().items()}
    stored = method.memory.images.copy(), method.memory.labels.copy()
    method.end_step(second)
    assert method.model.training and all(before[key].equal(value) for key, value in method.model.state_dict().items())

    def gradient(pixels: np.ndarray, label: int) -> np.ndarray:
        image = method.model.normalise(torch.from_numpy(pixels[None]))
        return flat(method, F.cross_entropy(method.logits(image), torch.tensor([label]))).numpy()

    method.model.eval()
    old = [gradient(*pair) for pair in zip(*stored, strict=True)]
    for i, (pixels, label) in enumerate(zip(second.pixels.numpy(), second.labels.tolist(), strict=True)):
        g = gradient(pixels, label)
        cosines = [sum(g * each) / (sum(g * g) * sum(each * each)) ** 0.5 for each in old]
        assert method.memory.extras["scores"][6 + i] == pytest.approx(1 + max(cosines), rel=1e-3)


def test_full_memory_replaces_images_of_high_score() -> None:
    """Scores 0.2, 0.6 and 1.2; one with score 0.4 replaces i with probability s_i / 2 * s_i / (s_i + 0.4)."""
    scores, images = np.array([0.2, 0.6, 1.2]), np.zeros((3, 2, 2, 3), np.uint8)
    counts = np.zeros(4)
    for seed in range(4000):
        memory = StreamMemory(3, "greedy", seed=seed)
        memory.add(images, np.arange(3), scores=scores)
        memory.add(images[:1], np.array([9]), scores=np.array([1.0]))
        assert memory.labels.tolist() == [0, 1, 2]  # too much like what is stored
        memory.add(images[:1], np.array([9]), scores=np.array([0.4]))
        (place,) = np.flatnonzero(memory.labels == 9) if 9 in memory.labels else (3,)
        counts[place] += 1
        assert place == 3 or memory.extras["scores"][place] == 0.4
    expected = [s / 2 * s / (s + 0.4) for s in scores]
    np.testing.assert_allclose(counts[:3] / 4000, expected, atol=0.03)
    empty = StreamMemory(0, "greedy")
    empty.add(images, np.arange(3), scores=scores)
    assert len(empty) == 0
