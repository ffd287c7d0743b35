import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cross_entropy, distance, draw, unit

from lreid.losses import patchkd_conf_loss, patchkd_div_loss, patchkd_kd_loss, patchkd_rd_loss


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.floats(0.5, 5), st.integers(0, 9))
def test_kd_and_conf_match_the_loops(rows, old, added, temperature, seed):
    student, teacher = draw(rows, old + added, seed=seed), draw(rows, old, seed=seed + 1)
    new, kept = student.tolist(), teacher.tolist()
    loss = patchkd_kd_loss(student, teacher, temperature=temperature)
    assert loss.item() == pytest.approx(cross_entropy(kept, new, temperature) * temperature**2)
    conf = patchkd_conf_loss(student, temperature=temperature)
    assert conf.item() == pytest.approx(cross_entropy(new, new, temperature) * temperature**2)


def relative(sets):
    """Distances over the mean of those above 0, by the definition."""
    distances = [
        [[0.0 if i == j else max(distance(a, b, "euclidean"), 1e-6) for j, b in enumerate(each)]
         for i, a in enumerate(each)] for each in sets
    ]  # fmt: skip
    flat = [d for each in distances for row in each for d in row]
    above = [d for d in flat if d > 0]
    return [d * len(above) / sum(above) for d in flat] if above else flat


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_rd_matches_the_loops(sets, vectors, seed):
    student = draw(sets, vectors, 3, seed=seed).requires_grad_()
    teacher = draw(sets, vectors, 5, seed=seed + 1, scale=40)
    loss = patchkd_rd_loss(student, teacher)
    loss.backward()
    gaps = [abs(a - b) for a, b in zip(relative(student.tolist()), relative(teacher.tolist()), strict=True)]
    assert loss.item() == pytest.approx(sum(g * g / 2 if g < 1 else g - 0.5 for g in gaps) / len(gaps), abs=1e-12)
    assert student.grad.isfinite().all()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 9))
def test_div_matches_the_loops(images, patches, seed):
    features = draw(images * patches, 4, seed=seed)
    rows, total, count = [unit(row) for row in features.tolist()], 0.0, 0
    for image in range(images):
        own = rows[image * patches : (image + 1) * patches]
        for i, a in enumerate(own):
            for j, b in enumerate(own):
                total, count = (total, count) if i == j else (total - distance(a, b, "cosine"), count + 1)
    expected = total / count if count else 0.0
    assert patchkd_div_loss(features, patches).item() == pytest.approx(expected, abs=1e-12)
