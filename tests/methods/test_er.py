"""ER, ER-ACE, ER-AML, MIR, A-GEM and DER++: their terms, their memory, and their replay."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import model, task_of, train
from PIL import Image
from synthetic_tasks import synthetic_task
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import ArgumentError
from lreid.losses import asymmetric_cross_entropy, er_aml_loss, sample_pairs
from lreid.methods import Method, build_method

NAMES = ("er", "er_ace", "er_aml", "mir", "der", "der_pp", "a_gem")


def segments(task: int, steps: int = 3, size: int = 6) -> list[Batch]:
    """Random images of a task's four identities, with the pixels that normalise to them."""
    rng, network, batches = np.random.default_rng(task), model(), []
    for step in range(steps):
        labels = torch.from_numpy(4 * task + rng.permutation(np.arange(size) % 4))
        pixels = torch.from_numpy(rng.integers(0, 256, (size, 32, 16, 3), dtype=np.uint8))
        paths = tuple(f"{task}-{step}-{number}.png" for number in range(size))
        batches.append(Batch(network.normalise(pixels), labels, pixels=pixels, paths=paths))
    return batches


def new(name: str, **options: object) -> Method:
    return build_method(name, model(), **options)


def learn(method: Method, tasks: int, first: int = 0, of: Callable[[int], Task] = task_of) -> list[dict[str, float]]:
    history = []
    for task in range(first, tasks):
        method.begin_task(of(task))
        history += train(method, segments(task))
        method.end_task(of(task))
    return history


def test_initial_classifier_rows_have_the_scale_of_torchs_linear_layer() -> None:
    method = new("er")
    method.classifier.cover(range(3000))
    linear = torch.nn.Linear(method.model.dim, 3000)
    assert method.classifier.weight.std().item() == pytest.approx(linear.weight.std().item(), rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_er_methods_train_on_incoming_and_stored_images(name: str) -> None:
    method = new(name, exemplars=10)
    history = learn(method, 2)
    assert set(history[0]) == {"incoming"}
    extra = {"der": {"logits"}, "der_pp": {"replay", "logits"}}.get(name, {"replay"})
    later = history[3:] if name == "a_gem" else history[1:]  # it replays past tasks alone
    assert all(set(terms) == {"incoming"} | extra for terms in later)
    assert len(method.memory) == method.exemplars == 10 and method.memory.seen == 36
    assert method.memory.nbytes == 10 * 32 * 16 * 3


def test_replay_term_is_the_cross_entropy_of_stored_images() -> None:
    method = new("er", exemplars=8, replay=4)
    learn(method, 2)
    twin = copy.deepcopy(method)
    terms = method.loss(segments(2)[0]._replace(labels=torch.tensor([4, 5, 6, 7, 4, 5])))
    assert method.model.images_trained - twin.model.images_trained == 6 + 4
    rows = twin.memory.draw(4)
    images = method.model.normalise(torch.from_numpy(twin.memory.images[rows]))
    logits = method.classifier(method.model(images))
    assert logits.shape == (4, 8)
    expected = F.cross_entropy(logits, torch.from_numpy(twin.memory.labels[rows]))
    assert terms["replay"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_known_tasks_exclude_current_images_from_replay() -> None:
    method = new("er", exemplars=30, task_free=False)
    learn(method, 1)
    method.begin_task(task_of(1))
    (first, *_) = segments(1)
    method.loss(first)
    method.end_step(first)
    assert set(method.memory.labels) > {4, 5}
    for _ in range(5):
        replay = method.choose(30, torch.zeros(()))
        assert set(replay.labels.tolist()) == {0, 1, 2, 3}
    assert set(new("er").choose(1, torch.zeros(())) or ()) == set()


def test_repeated_image_is_offered_to_the_memory_once() -> None:
    method = new("er", exemplars=100)
    method.begin_task(task_of(0))
    (batch, *_) = segments(0)
    twice = batch._replace(paths=(*batch.paths[:5], batch.paths[0]))
    for _ in range(3):
        method.loss(twice)
        method.end_step(twice)
    assert len(method.memory) == method.memory.seen == 5


def test_stored_logits_are_those_of_the_first_step() -> None:
    """However many updates a step has and however many batches an update."""
    method = new("der_pp", exemplars=100)
    method.begin_task(task_of(0))
    (one, two, three) = segments(0)
    expected = [method.logits(batch.images).detach().numpy() for batch in (one, two)]
    for _ in range(2):
        for batch in (one, two):
            method.loss(batch)
        with torch.no_grad():
            method.classifier.weight.add_(1.0)
    for batch in (one, two):
        method.end_step(batch)
    method.end_step(one)  # again in a later epoch
    np.testing.assert_array_equal(method.memory.extras["logits"], np.concatenate(expected))
    method.loss(three)
    method.end_step(three)
    assert not method.first_logits and len(method.memory) == 18


@pytest.mark.parametrize("name", ["er", "der_pp"])
def test_stored_paths_replay_the_same_pixels(name: str, tmp_path: Path) -> None:
    histories = []
    for store in ("images", "paths"):
        method = new(name, exemplars=10, store=store)
        method.begin_task(task_of(0))
        method.model.train()
        history = []
        for batch in segments(0):
            files = tuple(str(tmp_path / path) for path in batch.paths)
            for file, pixels in zip(files, batch.pixels.numpy(), strict=True):
                Image.fromarray(pixels).save(file)
            batch = batch._replace(paths=files)
            history.append({key: term.item() for key, term in method.loss(batch).items()})
            method.end_step(batch)
        histories.append(history)
    assert histories[0] == histories[1]


def test_er_ace_loss_covers_the_identities_of_the_batch() -> None:
    method = new("er_ace")
    learn(method, 2)
    (batch, *_) = segments(1)
    narrow = batch._replace(labels=torch.tensor([4, 5, 4, 5, 4, 5]))
    logits = method.logits(narrow.images)
    assert logits.abs().max() <= 10
    expected = F.cross_entropy(logits[:, 4:6], narrow.labels - 4)
    assert method.incoming_loss(narrow).item() == pytest.approx(expected.item(), rel=1e-5)
    method.official_denominator = True  # 7 was the highest that came in
    expected = asymmetric_cross_entropy(logits, narrow.labels, torch.arange(8))
    assert method.incoming_loss(narrow).item() == pytest.approx(expected.item(), rel=1e-5)
    assert expected > F.cross_entropy(logits[:, 4:6], narrow.labels - 4)


@pytest.mark.parametrize("negatives", ["incoming", "all"])
def test_er_aml_draws_pairs_from_batch_and_memory(negatives: str) -> None:
    method = new("er_aml", exemplars=12, negatives=negatives)
    learn(method, 2)
    twin, (batch, *_) = copy.deepcopy(method), segments(1)
    stored = torch.from_numpy(twin.memory.labels)
    pairs = sample_pairs(batch.labels, stored, twin.generator, negatives=negatives)
    labels = torch.cat([batch.labels, stored])
    rows = torch.cat([pairs.positive, pairs.negative]).unique()
    used = rows[rows >= 6]
    images = method.model.normalise(torch.from_numpy(twin.memory.images[(used - 6).numpy()]))
    features = method.model(torch.cat([batch.images, images]))
    place = {int(row): 6 + number for number, row in enumerate(used)} | {row: row for row in range(6)}
    anchors, positives, negative = (
        features[[place[int(row)] for row in of]] for of in (pairs.anchor, pairs.positive, pairs.negative)
    )
    expected = er_aml_loss(anchors, positives, negative, labels[pairs.anchor], labels[pairs.negative])
    assert method.incoming_loss(batch).item() == pytest.approx(expected.item(), rel=1e-4)
    old = set(labels[pairs.negative].tolist()) & {0, 1, 2, 3}
    assert bool(old) == (negatives == "all")


def test_mir_number_of_candidates() -> None:
    drawn = []
    for candidates in (0, 7):
        method = new("mir", exemplars=20, candidates=candidates, replay=2)
        learn(method, 3)
        (batch, *_) = segments(2)
        with patch.object(method.memory, "draw", wraps=method.memory.draw) as draw:
            method.choose(2, method.incoming_loss(batch))
        drawn.append(draw.call_args.args[0])
    assert drawn == [10, 7]
    with pytest.raises(ArgumentError, match="candidates is 7; .*9"):
        method.choose(9, torch.zeros(()))


@pytest.mark.parametrize("name", ["er", "er_ace"])
def test_reid_logits_come_after_a_neck(name: str) -> None:
    method = new(name, exemplars=20, reid_head=True)
    method.begin_task(synthetic_task(0))
    (batch, *_) = segments(0)

    def expected(features: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        rows, normed = method.classifier.weight, (features - mean) / (variance + 1e-5).sqrt()
        cosines = F.normalize(normed, dim=1) @ F.normalize(rows, dim=1).T
        return 10 * cosines if name == "er_ace" else normed @ rows.T

    features = method.model(batch.images)
    found = expected(features, features.mean(0), features.var(0, unbiased=False))
    torch.testing.assert_close(method.logits(batch.images), found, rtol=1e-4, atol=1e-4)
    running = 0.1 * features.mean(0), 0.9 + 0.1 * features.var(0)
    found = expected(features, *running)
    for _ in range(2):  # which looking at it leaves as they are
        torch.testing.assert_close(method.class_scores(features), found, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_mir_replays_the_most_interfered_images() -> None:
    method = new("mir", exemplars=20, candidates=15, replay=4, virtual_rate=0.5)
    learn(method, 3)
    (batch, *_) = segments(2)
    twin, moved = copy.deepcopy(method), copy.deepcopy(method)
    before = {key: value.clone() for key, value in method.model.state_dict().items()}
    incoming = method.incoming_loss(batch)
    after_incoming = {key: value.clone() for key, value in method.model.state_dict().items()}
    replay = method.choose(4, incoming)
    assert all(torch.equal(after_incoming[key], value) for key, value in method.model.state_dict().items())
    assert any(not torch.equal(before[key], value) for key, value in after_incoming.items())  # BatchNorm

    rows = twin.memory.draw(15)
    images = twin.model.normalise(torch.from_numpy(twin.memory.images[rows]))
    labels = torch.from_numpy(twin.memory.labels[rows])
    moved.incoming_loss(batch).backward()
    with torch.no_grad():
        for part in moved.parameters():
            part -= 0.5 * part.grad
        now = F.cross_entropy(twin.logits(images), labels, reduction="none")
        then = F.cross_entropy(moved.logits(images), labels, reduction="none")
    assert sorted(replay.rows) == sorted(rows[(then - now).topk(4).indices])
    incoming.backward()  # the graph is still there


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_domain_incremental_tasks_share_classifier_rows(name: str) -> None:
    """Labels of the second task are behind those of the first, for the memory; the classifier has four rows."""
    domains = [replace(task_of(index), shared_classes=4) for index in (0, 1)]
    method = new(name, exemplars=12)
    for index, task in enumerate(domains):
        method.begin_task(task)
        for batch in segments(index):
            method.loss(batch)
            method.end_step(batch)
    assert len(method.classifier) == 4 and max(method.memory.labels) > 3
    replay = method.choose(12, torch.zeros((), requires_grad=True)) if name != "mir" else method.read(np.arange(12))
    assert set(replay.labels.tolist()) <= set(range(4))
    assert (replay.labels.numpy() == method.memory.labels[replay.rows] % 4).all()
    if name in ("er", "der_pp"):
        (batch, *_) = segments(1)
        expected = F.cross_entropy(method.logits(batch.images), batch.labels - 4)
        assert method.loss(batch)["incoming"].item() == pytest.approx(expected.item(), rel=1e-5)
    twin = new(name, exemplars=12)
    twin.load_state_dict(method.state_dict())
    assert twin.shared_classes == 4


def flat(method: object, loss: Tensor) -> Tensor:
    """The gradient of all parameters in one row, in float64."""
    parameters = list(method.parameters())
    parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([part.double().flatten() for part in parts])


@pytest.mark.parametrize("against", [True, False])
def test_a_gem_gradient_equals_equation_11(against: bool) -> None:
    method = new("a_gem", exemplars=20)
    learn(method, 1)
    method.begin_task(task_of(1))
    method.model.eval()  # so that the losses can be had twice
    (batch, *_) = segments(1)
    method.replay = 20
    twin = copy.deepcopy(method)
    incoming, stored = twin.incoming_loss(batch), twin.replay_loss(twin.read(twin.memory.draw(20)))
    g, r = flat(twin, incoming), flat(twin, stored)
    sign = -1.0 if (g @ r < 0) != against else 1.0  # learn or unlearn the new images, whichever is wanted
    if sign < 0:
        plain = type(method).incoming_loss
        method.incoming_loss = lambda batch: -plain(method, batch)
    g = sign * g
    expected = g - (g @ r) / (r @ r) * r if against else g
    assert (g @ r < 0) == against
    found = flat(method, method.total(method.loss(batch)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not against or abs(found @ r) < 1e-4 * found.norm() * r.norm()


def test_a_gem_reference_excludes_current_images() -> None:
    method = new("a_gem", exemplars=20)
    assert all(set(terms) == {"incoming"} for terms in learn(method, 1))
    assert all(set(terms) == {"incoming", "replay"} for terms in learn(method, 2, first=1))
