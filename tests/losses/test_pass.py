import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import draw, golden_names, load_golden
from torch.nn import functional as F

from lreid.losses import augment_prototypes, class_means, feature_distillation_loss, prototype_radius, rotate_batch


def official_draws(hyper, width):
    """Prototypes and noise in the order in which the official code takes them from numpy's generator."""
    generator = np.random.RandomState(hyper["np_seed"])
    order, picks, noise = list(range(hyper["old_class"])), [], []
    for _ in range(hyper["batch_size"]):
        generator.shuffle(order)
        picks.append(order[0])
        noise.append(generator.normal(0, 1, width))
    return torch.tensor(picks), torch.tensor(np.array(noise))


@pytest.mark.parametrize("name", golden_names("pass"))
def test_losses_equal_golden_cases(name):
    hyper, arrays = load_golden(name)
    features = arrays["feature"].requires_grad_()
    targets = arrays["target"]
    _, labels = rotate_batch(torch.zeros(len(targets) // 4, 1, 2, 2), targets[::4] // 4)
    labels = labels.view(4, -1).T.flatten()  # the official code has the turns of an image side by side
    assert labels.tolist() == targets.tolist()

    def classify(rows):
        return F.linear(rows.float(), arrays["fc_weight"], arrays["fc_bias"]) / hyper["temp"]

    loss = F.cross_entropy(classify(features), labels)
    assert loss.item() == pytest.approx(arrays["ce"].item(), rel=1e-6)
    distillation = feature_distillation_loss(features, arrays["feature_old"])
    assert distillation.item() == pytest.approx(arrays["kd"].item(), rel=1e-6)
    if hyper["old_class"]:
        prototypes = arrays["prototype"]
        past, past_labels = augment_prototypes(
            prototypes, torch.arange(len(prototypes)), hyper["radius"], *official_draws(hyper, prototypes.shape[1])
        )
        loss = loss + hyper["protoAug_weight"] * F.cross_entropy(classify(past), past_labels)
        loss = loss + hyper["kd_weight"] * distillation
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-6, atol=0)
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=1e-5, atol=1e-6)


# Rotation


def test_rotations_of_square_images_are_exact():
    images, labels = rotate_batch(torch.arange(8.0).view(2, 1, 2, 2), torch.tensor([3, 0]))
    assert images[::2, 0].tolist() == [[[0, 1], [2, 3]], [[1, 3], [0, 2]], [[3, 2], [1, 0]], [[2, 0], [3, 1]]]
    assert images[1, 0].tolist() == [[4, 5], [6, 7]]
    assert labels.tolist() == [12, 0, 13, 1, 14, 2, 15, 3]


def test_tall_images_keep_their_size():
    images = torch.zeros(1, 3, 8, 4)
    images[:, :, :4] = 1  # the upper half is white
    turned, _ = rotate_batch(images, torch.tensor([0]))
    assert turned.shape == (4, 3, 8, 4)
    assert turned[1, 0, :, :1].eq(1).all() and turned[1, 0, :, -1:].eq(0).all()  # upper half to the left …
    assert turned[3, 0, :, -1:].eq(1).all() and turned[3, 0, :, :1].eq(0).all()  # … and to the right
    assert turned[2, 0, 4:].eq(1).all() and turned[2, 0, :4].eq(0).all()
    assert turned.mean((1, 2, 3)).tolist() == pytest.approx([0.5] * 4)


# Prototypes


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=20), st.integers(0, 20))
def test_means_and_radius_match_numpy(labels, seed):
    features, row_labels = draw(len(labels), 4, seed=seed), np.array(labels)
    means, names = class_means(features, torch.tensor(labels))
    assert names.tolist() == sorted(set(labels))
    groups = [features.numpy()[row_labels == name] for name in sorted(set(labels))]
    np.testing.assert_allclose(means.numpy(), [group.mean(0) for group in groups], rtol=1e-9, atol=1e-12)
    traces = [np.trace(np.cov(group.T)) / 4 for group in groups if len(group) > 1]
    expected = np.sqrt(np.mean(traces)) if traces else 0.0
    assert prototype_radius(features, torch.tensor(labels)) == pytest.approx(expected, rel=1e-9)


def test_means_are_exact_in_float32():
    features = torch.full((10_000, 1), 0.1)
    features[::2] += 1e4
    means, _ = class_means(features, torch.arange(10_000) % 2)
    assert means.dtype == torch.float32
    torch.testing.assert_close(means, torch.stack([features[0], features[1]]), rtol=1e-7, atol=0)


# Feature distillation


@given(st.integers(1, 9), st.integers(0, 20))
def test_feature_distillation_is_the_norm_of_the_batch(rows, seed):
    student, teacher = draw(rows, 4, seed=seed), draw(rows, 4, seed=seed + 1)
    squares = sum(
        (a - b) ** 2 for x, y in zip(student.tolist(), teacher.tolist(), strict=True) for a, b in zip(x, y, strict=True)
    )
    assert feature_distillation_loss(student, teacher).item() == pytest.approx(squares**0.5, rel=1e-12)
    twice = feature_distillation_loss(student.repeat(4, 1), teacher.repeat(4, 1))
    assert twice.item() == pytest.approx(2 * squares**0.5, rel=1e-12)
