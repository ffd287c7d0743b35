"""BoT-FT, LwF and iCaRL with exemplars: their terms, their limits, and their memory."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import assert_terms, model, train
from synthetic_tasks import learn, steps_of, synthetic_task
from torch import Tensor

from lreid.data.images import read_image
from lreid.data.loaders import Batch
from lreid.losses import batch_hard_triplet_loss, icarl_loss
from lreid.memory import ImagePaths
from lreid.methods import Method, build_method, method_class
from lreid.methods.bot_ft import BoTFineTuning


def with_neck(name: str, **options: object) -> Method:
    return build_method(name, model(neck=True), **options)


def outputs(method: Method, images: Tensor) -> tuple[Tensor, Tensor]:
    features = method.model(images)
    return features, method.model.neck(features) @ method.classifier.weight.T


def test_softmax_covers_all_identities_with_exemplars() -> None:
    method = with_neck("bot_ft", exemplars=500)
    learn(method, 1, exemplars=True)
    method.begin_task(synthetic_task(1))
    (batch,) = steps_of(1, exemplars=True, steps=1)
    assert sorted(set(batch.labels.tolist())) == list(range(8))
    terms = method.loss(batch)
    features, logits = outputs(method, batch.images)
    assert logits.shape == (24, 8)
    assert_terms(terms, 1e-4, softmax=F.cross_entropy(logits, batch.labels, label_smoothing=0.1))
    assert_terms(terms, triplet=batch_hard_triplet_loss(features, batch.labels))


class SigmoidFineTuning(BoTFineTuning):
    """What iCaRL is without its previous model."""

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        features, logits = outputs(self, batch.images)
        return {
            "bce": logits.shape[1] * icarl_loss(logits - math.log(logits.shape[1] - 1), batch.labels),
            "triplet": batch_hard_triplet_loss(features, batch.labels),
        }


@pytest.mark.slow
@pytest.mark.parametrize("budget", [500, 0])
def test_icarl_without_distillation_is_sigmoid_fine_tuning(budget: int) -> None:
    base = SigmoidFineTuning(model(neck=True), exemplars=budget)
    plain = learn(base, 3, exemplars=budget > 0)
    method = with_neck("icarl", distillation_weight=0.0, exemplars=budget)
    distilled = learn(method, 3, exemplars=budget > 0)
    assert "distill" in distilled[-1]
    assert plain == [{name: terms[name] for name in plain[0]} for terms in distilled]


def test_icarl_terms_equal_algorithm_3() -> None:
    """The two terms against the sums of the paper, image by image and identity by identity."""
    method = with_neck("icarl")
    first = learn(method, 1, exemplars=True)
    assert set(first[0]) == {"bce", "triplet"}
    method.begin_task(synthetic_task(1))
    train(method, steps_of(1, exemplars=True))
    (batch,) = steps_of(1, exemplars=True, steps=1)
    with torch.no_grad():
        method.old_classifier.weight.normal_(std=0.4)  # logits that are far from even
        method.classifier.weight.normal_(std=0.4)
    terms = method.loss(batch)
    with torch.no_grad():
        logits = outputs(method, batch.images)[1]
        old = method.teacher.neck(method.teacher(batch.images)) @ method.old_classifier.weight.T
    assert logits.shape == (24, 8) and old.shape == (24, 4)
    g, q = (1 / (1 + 7 * np.exp(-each.double().numpy())) for each in (logits, old))
    loss = 0.0
    for i, label in enumerate(batch.labels.tolist()):
        for k in range(4, 8):
            loss -= np.log(g[i, k] if k == label else 1 - g[i, k])
        for k in range(4):
            loss -= q[i, k] * np.log(g[i, k]) + (1 - q[i, k]) * np.log(1 - g[i, k])
    assert (terms["bce"] + terms["distill"]).item() == pytest.approx(loss / 24, rel=1e-4)
    assert abs(terms["distill"].item()) > 0.1


FILLED = ("co2l", "cclis")  # which use the whole budget


@pytest.mark.parametrize("name", ["bot_ft", "lwf", "icarl", "erd", "dwopp", "ida", "aka", "pass_proto", *FILLED])
def test_memory_holds_past_images_within_its_budget(name: str) -> None:
    method = build_method(name, model(neck=method_class(name).neck), exemplars=17)
    paths = {}
    for index in range(3):
        task = synthetic_task(index)
        method.begin_task(task)
        most = 17 if name in FILLED else 17 // max(4 * index, 1) * 4 * index
        assert method.exemplars == len(method.memory) == min(12 * index, most)
        method.end_task(task)
        paths |= {record.path: record.pid for record in task.records}
    known = {read_image(path, height=32, width=16).tobytes(): pid for path, pid in paths.items()}
    kept = [known[image.tobytes()] for image in method.memory.images]
    counts = np.unique(kept, return_counts=True)[1]
    assert kept == method.memory.labels.tolist() and counts.max() - counts.min() <= 1
    # Two images of each of 12 identities are too many: without filling, eight identities stay.
    assert (len(kept), len(counts)) == ((17, 12) if name in FILLED else (16, 8))
    weights = method.memory.extras.get("weights", np.ones(1))
    assert ((weights > 0) & (weights <= 1)).all()


def test_random_exemplars_depend_on_the_seed() -> None:
    images = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        network = model()
        torch.manual_seed(seed)
        method = build_method("erd", network, exemplars=4, selection="random", least_images=1)
        assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn
        method.end_task(synthetic_task(0))
        images.append(method.memory.images)
    assert np.array_equal(images[0], images[1]) and not np.array_equal(images[0], images[2])


def after_two_tasks(**options: object) -> Method:
    method = with_neck("bot_ft", **{"exemplars": 500} | options)
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
