"""Contrast Scoring: what is scored when, what stays in the buffer, and what is learned from it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from family import model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import SGD

from lreid.config import check_values, load_config, method_options
from lreid.data.loaders import Batch
from lreid.data.transforms import Augment, load_pipeline
from lreid.losses import nt_xent_loss
from lreid.methods import build_method
from lreid.methods.contrast_scoring import ContrastScoring


def scoring(seed: int = 0, **options: object) -> ContrastScoring:
    method = build_method("contrast_scoring", model(seed), **options)
    method.augment = noisy
    method.model.train()
    return method


def noisy(pixels: np.ndarray, *, seed: int) -> torch.Tensor:
    """A strong augmentation: half of the images mirrored, all with noise."""
    rng = np.random.default_rng(seed)
    images = (pixels / np.float32(64) - 2).transpose(0, 3, 1, 2)
    mirrored = rng.random(len(images)) < 0.5
    images[mirrored] = images[mirrored, ..., ::-1]
    return torch.from_numpy(images + rng.normal(0, 0.3, images.shape).astype(np.float32))


def segments(*sizes: int, seed: int = 1) -> list[Batch]:
    """Images that come in, with labels that mean nothing."""
    rng = np.random.default_rng(seed)
    return [
        Batch(
            torch.empty(size, 0),
            torch.from_numpy(rng.integers(0, 4, size)),  # nothing looks at `images`
            pixels=torch.from_numpy(rng.integers(0, 256, (size, 32, 16, 3), dtype=np.uint8)),
        )
        for size in sizes
    ]


def learn(method: ContrastScoring, stream: list[Batch], iterations: int = 1) -> list[float]:
    """Loss values step by step."""
    optimizer, history = SGD(method.parameters(), lr=0.05), []
    for batch in stream:
        for _ in range(iterations):
            (loss,) = method.loss(batch).values()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        method.end_step(batch)
    return history


def names(pixels: np.ndarray | torch.Tensor) -> list[bytes]:
    return [bytes(np.asarray(image)) for image in pixels]


def test_contrast_score_is_the_cosine_distance_to_the_mirror_image() -> None:
    method = scoring()
    learn(method, segments(6, 6))
    pixels = segments(5, seed=9)[0].pixels.numpy()
    state = {name: value.clone() for name, value in method.model.state_dict().items()}
    scores = method.scores(pixels)
    assert method.model.training
    assert all(torch.equal(value, state[name]) for name, value in method.model.state_dict().items())
    method.model.eval()
    expected = []
    for image in pixels:
        pair = [image[None], image[None, :, ::-1].copy()]
        with torch.no_grad():
            ahead, mirrored = (
                method.network.head(method.model(method.model.normalise(torch.from_numpy(one))))[0].double()
                for one in pair
            )
        expected.append(1 - (ahead @ mirrored / ahead.norm() / mirrored.norm()).item())
    assert scores == pytest.approx(expected, abs=1e-6)
    assert len(set(scores)) == 5 and min(scores) > 0 and max(scores) < 2


def test_buffer_keeps_the_highest_scores() -> None:
    method = scoring(buffer=4)
    first, second, third = segments(5, 6, 6)
    learn(method, [first, second])
    union = np.concatenate([method.memory.images, third.pixels.numpy()])
    scores = method.scores(union)
    method.loss(third)
    best = np.argsort(-scores)[:4]
    assert sorted(names(method.memory.images)) == sorted(names(union[best]))
    kept = dict(zip(names(union), scores, strict=True))
    assert method.memory.extras["scores"] == pytest.approx(
        [kept[name] for name in names(method.memory.images)], abs=1e-6
    )


@pytest.mark.parametrize("interval", [1, 3])
def test_images_are_scored_again_after_every_interval(interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    method, stream = scoring(buffer=6, lazy_interval=interval), segments(*[4] * 12)
    scored: list[bytes] = []
    given_scores: dict[bytes, float] = {}
    score = ContrastScoring.scores

    def recorded(self: ContrastScoring, pixels: np.ndarray) -> np.ndarray:
        # With a part that stays, so that some images stay for long.
        scores = score(self, pixels) + np.float32([image[0, 0, 0] % 8 / 8 for image in pixels])
        scored.extend(names(pixels))
        given_scores.update(zip(names(pixels), scores, strict=True))
        return scores

    monkeypatch.setattr(ContrastScoring, "scores", recorded)
    entered: dict[bytes, int] = {}
    again, ages = 0, []
    for step, batch in enumerate(stream):
        stored = names(method.memory.images)
        due = [name for name in stored if (step - entered[name]) % interval == 0]
        scored.clear()
        learn(method, [batch])
        assert sorted(scored) == sorted([*due, *names(batch.pixels)])
        entered |= dict.fromkeys(names(batch.pixels), step)
        assert method.memory.extras["scores"].tolist() == [given_scores[name] for name in names(method.memory.images)]
        again += len(due)
        ages += [step - entered[name] for name in stored]
    assert method.rescored == again > 0
    share = 100 * again / (method.memory.budget * method.memory.steps)
    assert method.figures() == {"rescored_percent": pytest.approx(share, abs=1e-4)}
    assert max(ages) > 3  # some stayed longer than an interval
    assert method.memory.steps == 12


@pytest.mark.parametrize("policy", ["fifo", "random"])
def test_baseline_policies_compute_no_scores(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContrastScoring, "scores", None)
    stream = segments(4, 4, 4, 4)
    kept = []
    for seed in (0, 0, 1):
        method = scoring(seed, buffer=6, policy=policy)
        learn(method, stream)
        kept.append(sorted(names(method.memory.images)))
    came = [name for batch in stream for name in names(batch.pixels)]
    assert kept[0] == kept[1] and set(kept[0]) <= set(came)
    assert [each == sorted(came[-6:]) for each in kept] == [policy == "fifo"] * 3
    assert (kept[0] == kept[2]) == (policy == "fifo")


def test_loss_is_nt_xent_of_two_views_of_the_buffer() -> None:
    method = scoring(buffer=4, temperature=0.3)
    first, second = segments(5, 5)
    learn(method, [first])
    generator = torch.Generator()
    generator.set_state(method.generator.get_state())
    (loss,) = method.loss(second).values()
    seeds = [int(torch.randint(2**31, (), generator=generator)) for _ in range(2)]
    assert seeds[0] != seeds[1]
    views = [noisy(method.memory.images, seed=seed) for seed in seeds]
    with torch.no_grad():
        rows = torch.nn.functional.normalize(method.network(torch.cat(views)).projections)
    pairs = torch.stack([rows[:4], rows[4:]], dim=1)
    assert loss.item() == pytest.approx(nt_xent_loss(pairs, temperature=0.3).item(), rel=1e-5)
    loss.backward()
    assert all(part.grad is not None for part in method.parameters())


def test_labels_do_not_influence_training() -> None:
    stream = segments(6, 6, 6)
    changed = [batch._replace(labels=batch.labels.flip(0) + 10) for batch in stream]
    assert learn(scoring(), stream) == learn(scoring(), changed)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), buffer=st.integers(0, 5))
@settings(deadline=None, max_examples=10)
def test_buffer_stays_within_its_budget(sizes: list[int], buffer: int) -> None:
    method, came = scoring(buffer=buffer), 0
    budget = buffer or sizes[0]
    for batch in segments(*sizes):
        method.select(batch)
        came += len(batch.labels)
        assert len(method.memory) == method.exemplars == min(budget, came)
        assert method.memory.nbytes == len(method.memory) * 32 * 16 * 3


def test_repeated_steps_offer_a_segment_once() -> None:
    method = scoring(buffer=4)
    learn(method, segments(3, 3, 3), iterations=2)
    assert (method.memory.steps, method.memory.seen) == (3, 9)
    # Two steps, each with two views, of a buffer of 3, then of 4 images.
    assert method.model.images_trained == 2 * (2 * 3 + 2 * 4 + 2 * 4)


def test_accumulated_segments_are_each_offered_once() -> None:
    method, stream = scoring(buffer=20), segments(3, 4)
    for batch in (*stream, *stream):
        method.loss(batch)
    for batch in stream:
        method.end_step(batch)
    assert (method.memory.steps, method.memory.seen) == (2, 7) and not method.taken


@pytest.mark.slow
def test_recipe_has_strong_augmentation(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    cfg = load_config(["configs/recipes/contrast_scoring.yaml"])
    check_values(cfg)
    method = build_method(cfg.METHOD.NAME, model(), **method_options(cfg))
    assert method.batches == "stream" and method.temperature == 0.5
    augment = Augment(load_pipeline(*cfg.INPUT.PIPELINE), mean=(0, 0, 0), std=(1, 1, 1))
    for height, width in ((64, 32), (128, 128)):
        # Red grows downwards and green to the right: the share of each that is left tells the crop.
        ramps = np.meshgrid(np.linspace(50, 150, height), np.linspace(50, 150, width), indexing="ij")
        images = 300 * [np.stack([*ramps, 100 * np.ones((height, width))], 2).astype(np.uint8)]
        views = augment(images, seed=3, progress=0.0)
        assert views.shape == (300, 3, height, width)
        assert np.array_equal(views, augment(images, seed=3, progress=0.0))
        assert len(set(names(views))) == 300
        grey = np.ptp(views, axis=1).max((1, 2)) < 1e-6
        assert 35 < grey.sum() < 90  # 60 expected, deviation 7
        crop = augment.before[0]
        shares = [np.ptp(crop(image=image)["image"].astype(int), axis=(0, 1)) / 100 for image in images]
        areas = [share[0] * share[1] for share in shares]
        assert 0.42 < np.mean(areas) < 0.58 and min(areas) > 0.12 and max(areas) > 0.75
