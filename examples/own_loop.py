"""Train a method in your own training loop, with your own network.

    python examples/own_loop.py

It shows every call that a method needs from a loop. Checkpoints, resuming and reports are part of lreid.training.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lreid.data.datasets import Sources
from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.samplers import EpisodeSampler
from lreid.data.tasks import build_benchmark
from lreid.evaluation import Evaluator, load_tests
from lreid.methods.dwopp import DwoPP
from lreid.models import Embedder

people = {"train_identities": 24, "test_identities": 12, "images_per_identity": 5, "distractors": 0, "seed": 0}
benchmark = build_benchmark("mine", train=["synthetic:plaza", "synthetic:station"], sources=Sources(synthetic=people))

torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 32, 4, stride=4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU())
method = DwoPP(Embedder(network, dim=64, height=32, width=16))  # any module that gives maps or vectors
evaluator = Evaluator(load_tests(benchmark.tests, height=32, width=16))

for task in benchmark:
    images = Images(task.records, height=32, width=16)  # each (32, 16, 3) uint8; images.pids are the class labels
    sampler = EpisodeSampler(images.pids, identities=8, num_support=3, num_query=1, seed=task.index)
    data = TensorDataset(torch.tensor(images[:]), torch.tensor(images.pids))
    loader = DataLoader(data, batch_sampler=sampler)
    method.begin_task(task)
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-3)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        method.network.train()
        for pixels, labels in loader:
            batch = Batch(method.model.normalise(pixels), labels, sampler.num_support)
            terms = method.loss(batch)  # by name, each a scalar
            optimizer.zero_grad()
            method.total(terms).backward()
            optimizer.step()
            method.end_step(batch)
    method.finish_task(task)  # what it does to the network is evaluated
    for test, figures in zip(benchmark.tests, evaluator.evaluate(method.model), strict=True):
        print(f"after {task.name}: {test.name} mAP {figures.metrics['mAP']:.1f}, Rank-1 {figures.metrics['rank1']:.1f}")
    print("    " + ", ".join(f"{name} {term:.2f}" for name, term in terms.items()))
    method.end_task(task)  # its images are not seen again
