import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import affinities, divergence, draw, golden_names, load_golden

from lreid.losses import affinity_kl_loss


@pytest.mark.parametrize("name", [*golden_names("dask_affinity_kl"), *golden_names("dkppp_distill")])
def test_golden(name):
    hyper, arrays = load_golden(name)
    student = arrays["feat_new"].requires_grad_()
    loss = affinity_kl_loss(
        student, arrays["feat_old"], temperature=hyper["tau"], reverse=name.startswith("dkppp_distill")
    )
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(student.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 6), st.floats(0.05, 2), st.booleans(), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_matches_the_loops(rows, temperature, reverse, seed):
    student = draw(rows, seed=seed).requires_grad_()
    teacher = draw(rows, width=3, seed=seed + 1).requires_grad_()  # a model of another width
    loss = affinity_kl_loss(student, teacher, temperature=temperature, reverse=reverse)
    loss.backward()
    new, old = (affinities(each.tolist(), temperature) for each in (student, teacher))
    expected = divergence(new, old) if reverse else divergence(old, new)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert teacher.grad is None and student.grad.isfinite().all()


@pytest.mark.parametrize("reverse", [False, True])
def test_equal_models_are_the_least_and_lengths_do_not_count(reverse):
    teacher = draw(6)
    student = (3 * teacher).requires_grad_()
    loss = affinity_kl_loss(student, teacher, reverse=reverse)
    loss.backward()
    assert abs(loss.item()) < 1e-14 and student.grad.abs().max() < 1e-14
    assert affinity_kl_loss(draw(6, seed=1), teacher, reverse=reverse) > 0.01


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient(reverse):
    teacher = draw(5, seed=1)
    assert torch.autograd.gradcheck(lambda x: affinity_kl_loss(x, teacher, reverse=reverse), draw(5).requires_grad_())


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e15])
def test_float32_stays_finite_at_any_length(scale):
    student = (scale * draw(6)).float().requires_grad_()
    loss = affinity_kl_loss(student, draw(6, seed=1).half(), temperature=1e-3)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite() and student.grad.isfinite().all()


@pytest.mark.parametrize(
    ("student", "teacher", "options", "message"),
    [
        ((4, 3), (5, 3), {}, "student and teacher"),
        ((4, 2, 3), (4, 2, 3), {}, "student and teacher"),
        ((4, 3), (4, 3), {"temperature": 0}, "temperature must be above 0"),
    ],
)
def test_bad_arguments(student, teacher, options, message):
    with pytest.raises(ValueError, match=message):
        affinity_kl_loss(torch.ones(student), torch.ones(teacher), **options)
