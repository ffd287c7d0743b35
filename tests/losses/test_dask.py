import torch
from hypothesis import given
from hypothesis import strategies as st

from lreid.losses import dask_color_resample, dask_decode


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_resampling_keeps_constant_channels():
    images = draw(3, 3, 4, 4).float()
    images[:, 1] = 0.5
    out = dask_color_resample(images)
    assert out.dtype == torch.float32 and out.isfinite().all()
    torch.testing.assert_close(out[:, 1], images[:, 1])
    equal = draw(1, 3, 4, 4).expand(4, -1, -1, -1)
    torch.testing.assert_close(dask_color_resample(equal), equal)


@given(st.integers(0, 3), st.integers(1, 5), st.integers(1, 4), st.sampled_from([1, 3]), st.integers(0, 9))
def test_decoding_matches_the_loops(count, height, width, groups, seed):
    images, kernels = draw(count, 3, height, width, seed=seed), draw(count, 81 // groups + 3, seed=seed + 1)
    decoded = dask_decode(images, kernels, groups=groups)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    each = 3 // groups
    for image in range(count):
        weights = kernels[image, :-3].view(3, each, 3, 3)
        for out in range(3):
            first = out // each * each  # of the input channels of its group
            for y in range(height):
                for x in range(width):
                    window = padded[image, first : first + each, y : y + 3, x : x + 3]
                    expected = (window * weights[out]).sum() + kernels[image, -3 + out]
                    torch.testing.assert_close(decoded[image, out, y, x], expected)


def test_decoding_has_the_right_gradient():
    images = draw(2, 3, 5, 4)
    assert torch.autograd.gradcheck(lambda kernels: dask_decode(images, kernels), draw(2, 84).requires_grad_())
