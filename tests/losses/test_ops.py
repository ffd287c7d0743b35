import torch

from lreid.losses._ops import distances, squared_distances


def test_squared_distances_of_close_vectors_far_from_the_origin():
    generator = torch.Generator().manual_seed(0)
    a = 100 + torch.rand(5, 2048, generator=generator, dtype=torch.float64) * 1e-2
    b = 100 + torch.rand(7, 2048, generator=generator, dtype=torch.float64) * 1e-2
    direct = (a[:, None] - b).square().sum(2)
    torch.testing.assert_close(squared_distances(a, b), direct, rtol=1e-5, atol=0)


def test_euclidean_distance_has_a_finite_gradient_at_zero():
    points = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    distance = distances(points, points.detach(), "euclidean")
    assert distance.tolist() == [[0.0, 5.0], [5.0, 0.0]]
    distance.sum().backward()
    torch.testing.assert_close(points.grad, torch.tensor([[0.6, 0.8], [-0.6, -0.8]], dtype=torch.float64))
