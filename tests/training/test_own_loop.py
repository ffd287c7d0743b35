"""A loop of somebody's own, of torch's loader and optimiser and the calls of a method, does what a run does."""

from pathlib import Path

import pytest
import torch
from tiny import FEW, tiny_config
from torch.utils.data import DataLoader, TensorDataset

from lreid.build import method_of, resolved
from lreid.checkpoint import load_checkpoint
from lreid.data.datasets import Sources
from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.samplers import EpisodeSampler
from lreid.data.tasks import Cut, build_benchmark
from lreid.data.transforms import Augment
from lreid.evaluation import Evaluator, load_tests
from lreid.training.run import train


@pytest.mark.slow
def test_custom_training_loop_reproduces_a_run(tmp_path: Path) -> None:
    cfg = resolved(tiny_config(FEW, INPUT__PIPELINE=[], TRAIN__DECAY_START=1.0, DEVICE="cpu"))
    results = train(cfg, tmp_path)

    synthetic = {key.lower(): value for key, value in cfg.SYNTHETIC.items()}
    benchmark = build_benchmark("own", train=cfg.BENCHMARK.TRAIN, cut=Cut(3), sources=Sources(synthetic=synthetic))
    torch.manual_seed(cfg.SEED)
    method = method_of(cfg, torch.device("cpu"), pretrained=False)
    evaluator = Evaluator(load_tests(benchmark.tests, height=32, width=16), flip=cfg.EVAL.FLIP)
    normalise = Augment(mean=cfg.INPUT.MEAN, std=cfg.INPUT.STD)
    for task in benchmark:
        images = Images(task.records, height=32, width=16)
        data = TensorDataset(torch.tensor(images[:]), torch.tensor(images.pids))
        sampler = EpisodeSampler(
            images.pids, identities=2, num_support=2, num_query=cfg.EPISODE.QUERY, seed=(cfg.SEED, task.index)
        )
        loader = DataLoader(data, batch_sampler=sampler)
        method.begin_task(task)
        decay = {"weight_decay": cfg.TRAIN.WEIGHT_DECAY, "fused": True}
        optimizer = torch.optim.Adam(method.parameters(), lr=cfg.TRAIN.LR, **decay)
        for epoch in range(cfg.TRAIN.EPOCHS):
            sampler.set_epoch(epoch)
            method.model.train()
            for pixels, labels in loader:
                ready = torch.from_numpy(normalise(list(pixels.numpy()), seed=0, progress=0))
                batch = Batch(ready, labels, sampler.num_support)
                optimizer.zero_grad()
                method.total(method.loss(batch)).backward()
                optimizer.step()
                method.end_step(batch)
        method.finish_task(task)
        figures = evaluator.evaluate(method.model)
        assert [round(each.metrics["mAP"], 4) for each in figures] == results["mAP"][task.index]
        method.end_task(task)
        weights = load_checkpoint(tmp_path / "checkpoints" / f"task-{task.index + 1:02d}.pt")["model"]
        own = method.model.state_dict()
        assert own.keys() == weights.keys() and all(torch.equal(own[name], weights[name]) for name in own)
