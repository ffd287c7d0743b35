"""The loop: task after task, epoch after epoch, and a look at every test set in between."""

from __future__ import annotations

import logging
import math
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from yacs.config import CfgNode

from lreid.data.disk_cache import DiskCache
from lreid.data.images import Images, require_files
from lreid.data.loaders import TaskBatches, WithExemplars, batch_loader, progress_of
from lreid.data.records import Benchmark, Task
from lreid.data.samplers import EpisodeSampler, IdentitySampler, StreamSampler
from lreid.data.transforms import Augment
from lreid.errors import InputError
from lreid.evaluation import (
    AccuracyEvaluator,
    DriftRecorder,
    Evaluator,
    accuracy_line,
    append_rows,
    summarise,
)
from lreid.methods import Method
from lreid.training.checkpoint import CURRENT, save_checkpoint
from lreid.training.run_folder import RunFolder
from lreid.training.schedule import decay_factor

logger = logging.getLogger("lreid")

HISTORY_POINTS = 50  # loss values kept per task
DRIFT_IMAGES = 100  # of each set whose drift is watched


class Trainer:
    """Trains a method on a benchmark.

    Args:
        method: holds the network.
        benchmark: tasks and test sets.
        evaluator: scores the network on the test sets.
        folder: where everything is written.
        results: the content of ``results.json`` so far.
        cfg: the resolved config; the groups SEED, DATA, INPUT, EPISODE, BATCH and TRAIN are read.
        device: where the network is.
        accuracy: scores classification after every task; None leaves it out.
    """

    def __init__(
        self, method: Method, benchmark: Benchmark, evaluator: Evaluator, folder: RunFolder,
        results: dict[str, Any], cfg: CfgNode, device: torch.device, accuracy: AccuracyEvaluator | None = None,
    ) -> None:  # fmt: skip
        self.method, self.benchmark, self.evaluator = method, benchmark, evaluator
        self.folder, self.results, self.cfg, self.device = folder, results, cfg, device
        self.accuracy = accuracy
        self.augment = Augment(
            flip=cfg.INPUT.FLIP, erasing=cfg.INPUT.ERASING, mean=cfg.INPUT.MEAN, std=cfg.INPUT.STD,
            pipeline=cfg.INPUT.PIPELINE,
        )  # fmt: skip
        # Made up front, so that a task that is too small is found before hours are spent on those before it.
        self.epoch_steps = [
            self._sampler(task, [record.pid for record in task.records]).batches_per_epoch
            for task in benchmark.tasks
        ]
        self.task, self.epoch = 0, 0  # position: the task at hand and its epochs that are done
        self.optimizer_state: dict[str, Any] | None = None
        self.saved_at = time.monotonic()

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Takes the position and the optimiser of a checkpoint; model, method and results are in place."""
        self.task, self.epoch = checkpoint["position"]["task"], checkpoint["position"]["epoch"]
        self.optimizer_state = checkpoint["optimizer"]

    def run(self) -> None:
        """Trains what is left of the benchmark."""
        if not self.cfg.DATA.SKIP_BAD_IMAGES:  # a file that is missing is told now, not tasks later
            for task in self.benchmark.tasks[self.task :]:
                require_files(task.records)
        epochs, steps = self.cfg.TRAIN.EPOCHS, self.epoch_steps
        done = epochs * sum(steps[: self.task]) + sum(steps[self.task : self.task + 1]) * self.epoch
        # One bar for the whole run, so that the time left is that of all tasks; none where nobody looks at it.
        self.bar = tqdm(total=epochs * sum(steps), initial=done, unit="step", disable=None, leave=False)
        with logging_redirect_tqdm(), self.bar:
            if self.results["mAP"]:  # taken up again: the run may have broken off before it wrote these
                self._report()
            for task in self.benchmark.tasks[self.task :]:
                self._train_task(task)
                self._evaluate(task)
                self.method.end_task(self._readable(task))
                self.results["exemplars"] = self.method.exemplars
                self.results["exemplar_bytes"] = self.method.memory.nbytes if self.method.memory else 0
                self.task, self.epoch = task.index + 1, 0
                self._save(self.folder.task_checkpoint(task.index), optimizer=None)
                (self.folder.checkpoints / CURRENT).unlink(missing_ok=True)
                self._report()

    def _train_task(self, task: Task) -> None:
        epochs = self.cfg.TRAIN.EPOCHS
        if self.epoch == 0:
            self.method.begin_task(task)
        if self.epoch == epochs:  # the run broke off between training and evaluation
            self._set_augmentation(epochs - 1)  # end_task may need it
            self.optimizer_state = None
            return
        batches = self._batches(task)
        drift = self._drift_recorder(task)
        # Fresh for every task, as in the official code.
        optimizer = self._optimizer()
        if self.optimizer_state is not None:
            optimizer.load_state_dict(self.optimizer_state)
            self.optimizer_state = None
        loader = iter(
            batch_loader(batches, workers=self.cfg.DATA.WORKERS, pin_memory=self.device.type == "cuda")
        )
        name = f"task {task.index + 1}/{len(self.benchmark.tasks)}"
        self.bar.set_description(name)
        exemplars = len(batches.images) - len(self._readable(task).records)
        logger.info(
            "%s: %s, %d identities, %d images%s", name, task.name, len(task.classes),
            len(batches.images) - exemplars, f" and {exemplars} exemplars" if exemplars else "",
        )  # fmt: skip
        while self.epoch < epochs:
            self._train_epoch(loader, optimizer, batches.sampler.batches_per_epoch, drift)
            if self.epoch < epochs and self._save_is_due():
                self._save(self.folder.checkpoints / CURRENT, optimizer)
        if drift is not None:
            self.results["drift"].append({"task": task.index, **drift.curves})
        self._save(self.folder.checkpoints / CURRENT, optimizer)

    def _drift_recorder(self, task: Task) -> DriftRecorder | None:
        """Watches stored images and test images of earlier places through the first steps of a task."""
        if self.cfg.EVAL.DRIFT_STEPS == 0 or task.index == 0 or self.epoch > 0:
            return None
        sets = {"buffer": self.method.memory.images if self.method.memory else []}
        for test, (query, _) in zip(self.evaluator.tests, self.evaluator.images, strict=True):
            if test.kind == "seen" and test.first_task < task.index:
                sets[f"held out: {test.name}"] = query
        chosen = {
            name: np.stack([images[row] for row in spread(len(images), DRIFT_IMAGES)])
            for name, images in sets.items()
            if len(images)
        }
        return DriftRecorder(self.method.model, chosen, steps=self.cfg.EVAL.DRIFT_STEPS)

    def _optimizer(self) -> Optimizer:
        train, parameters = self.cfg.TRAIN, self.method.parameters()
        if train.OPTIMIZER == "sgd":
            return SGD(parameters, lr=train.LR, momentum=train.MOMENTUM, weight_decay=train.WEIGHT_DECAY)
        return Adam(parameters, lr=train.LR, weight_decay=train.WEIGHT_DECAY)

    def _sampler(
        self, task: Task, labels: Sequence[int], exemplars: Sequence[int] = ()
    ) -> IdentitySampler | StreamSampler:
        batch, stream, seed = self.cfg.BATCH, self.cfg.STREAM, (self.cfg.SEED, task.index)
        if stream.SEGMENT or self.method.batches == "stream":
            if self.method.exemplar_share is not None:
                raise InputError(
                    f"STREAM.SEGMENT: {self.cfg.METHOD.NAME} mixes exemplars into its batches, which a stream has not; "
                    "set STREAM.SEGMENT 0, or take a method that replays, such as er"
                )
            segment = stream.SEGMENT or batch.IDENTITIES * batch.IMAGES
            return StreamSampler(labels, segment=segment, correlation=stream.CORRELATION, seed=seed)
        common = {
            "seed": seed, "task_name": task.name,
            "exemplars": exemplars, "exemplar_share": self.method.exemplar_share or 0.0,
        }  # fmt: skip
        if self.method.batches == "identities":
            return IdentitySampler(labels, identities=batch.IDENTITIES, images=batch.IMAGES, **common)
        episode = self.cfg.EPISODE
        return EpisodeSampler(
            labels, identities=episode.IDENTITIES, num_support=episode.SUPPORT, num_query=episode.QUERY,
            **common,
        )  # fmt: skip

    def _batches(self, task: Task) -> TaskBatches:
        cfg = self.cfg
        images = Images(
            task.records, height=cfg.INPUT.HEIGHT, width=cfg.INPUT.WIDTH, cache_gib=cfg.DATA.CACHE_GIB,
            disk=DiskCache(cfg.DATA.CACHE_DIR, cfg.DATA.CACHE_DIR_GIB), skip_bad=cfg.DATA.SKIP_BAD_IMAGES,
        )  # fmt: skip
        if images.skipped:
            self.results["skipped"] = sorted({*self.results["skipped"], *images.skipped})
            logger.warning(
                "%s: skipped %d images: %s", task.name, len(images.skipped), ", ".join(images.skipped)
            )
        memory = self.method.memory if self.method.exemplar_share is not None else None
        sampler = self._sampler(task, images.pids, memory.labels if memory else ())
        if memory:
            images = WithExemplars(images, memory.images, memory.labels)
        return TaskBatches(
            images, sampler, self.augment, epochs=cfg.TRAIN.EPOCHS, first_epoch=self.epoch,
            views=self.method.views, pixels=self.method.pixels,
        )  # fmt: skip

    def _readable(self, task: Task) -> Task:
        """The task without the images that were skipped."""
        skipped = set(self.results["skipped"])
        return replace(task, records=tuple(each for each in task.records if each.path not in skipped))

    def _train_epoch(
        self, loader: Any, optimizer: Optimizer, steps: int, drift: DriftRecorder | None = None
    ) -> None:
        started, cpu = time.perf_counter(), time.process_time()
        train = self.cfg.TRAIN
        rate = train.LR * decay_factor(
            self.epoch,
            train.EPOCHS,
            start=train.DECAY_START,
            end=train.DECAY_FACTOR,
            warmup=train.WARMUP_EPOCHS,
            shape=train.SCHEDULE,
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("rate_factor", 1.0)
        self._set_augmentation(self.epoch)
        self.method.model.train()
        iterations = self.cfg.STREAM.ITERATIONS
        sums: dict[str, Tensor] = {}
        images, replayed = 0, self.method.replayed
        for _ in range(steps):
            batch = next(loader)
            batch = batch._replace(images=batch.images.to(self.device, non_blocking=True))
            for _ in range(iterations):
                terms = self.method.loss(batch)
                optimizer.zero_grad(set_to_none=True)
                sum(self.method.weights.get(name, 1.0) * term for name, term in terms.items()).backward()
                optimizer.step()
                if drift is not None:
                    drift.after_step()
                for name, term in terms.items():
                    sums[name] = sums.get(name, 0) + term.detach() / iterations
                images += len(batch.labels)
            self.method.end_step(batch)
            self.bar.update()
        self.epoch += 1
        losses = {name: total.item() / steps for name, total in sums.items()}
        self.results["seconds"]["train"] += time.perf_counter() - started
        self.results["seconds"]["train_cpu"] += time.process_time() - cpu  # on a busy machine the truer one
        self.results["steps_trained"] += steps * iterations
        self.results["images_trained"] += images + self.method.replayed - replayed
        self._check_finite(losses)
        self.bar.set_postfix({name: f"{value:.3f}" for name, value in losses.items()}, refresh=False)
        entry = {"task": self.task, "epoch": self.epoch, "lr": rate, **losses}
        self.folder.log_scalars(entry, step=self.task * train.EPOCHS + self.epoch)
        if self.epoch % max(1, train.EPOCHS // HISTORY_POINTS) == 0:
            self.results["loss_history"].append(entry)

    def _set_augmentation(self, epoch: int) -> None:
        """Tells the method how images are augmented that it draws by itself."""
        self.method.augment = partial(self.augment, progress=progress_of(epoch, self.cfg.TRAIN.EPOCHS))

    def _check_finite(self, losses: dict[str, float]) -> None:
        if not all(math.isfinite(value) for value in losses.values()):
            raise InputError(
                f"the loss is not finite in epoch {self.epoch} of task {self.task + 1} ({losses}); lower TRAIN.LR "
                f"and start again, or go on from the last checkpoint in {self.folder.checkpoints}"
            )

    def _evaluate(self, task: Task) -> None:
        started = time.perf_counter()
        figures = self.evaluator.evaluate(self.method.model)
        if self.accuracy is not None:
            append_rows(self.results, self.accuracy.evaluate(self.method, self._readable(task)))
        self.results["seconds"]["evaluate"] += time.perf_counter() - started
        for name in ("mAP", "rank1", "rank5", "rank10"):
            self.results[name].append([round(getattr(figure, name), 4) for figure in figures])
        for gallery, figure in zip(self.results["galleries"], figures, strict=True):
            gallery["valid_queries"] = figure.num_valid
            history = self.results["identity_ap"].setdefault(
                gallery["name"], {"ids": list(figure.identity_ap), "ap": []}
            )
            history["ap"].append([round(value, 4) for value in figure.identity_ap.values()])
        seconds = self.results["seconds"]["train"]
        self.results["images_per_second"] = round(self.results["images_trained"] / seconds, 1)
        self.results["peak_memory_mib"] = max(self.results["peak_memory_mib"], peak_memory_mib(self.device))
        self.results["skipped_images"] = len(self.results["skipped"])
        self.results["summary"] = summarise(self.results)

    def _report(self) -> None:
        self.folder.write_results(self.results)
        self.folder.report_task(self.results)
        if self.results["accuracy"]:
            logger.info("%s\n", accuracy_line(self.results))

    def _save_is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= 60 * self.cfg.TRAIN.CHECKPOINT_MINUTES

    def _save(self, path: Path, optimizer: Optimizer | None) -> None:
        save_checkpoint(
            path,
            {
                "model": self.method.model.state_dict(),
                "method": self.method.state_dict(),
                "optimizer": optimizer.state_dict() if optimizer is not None else None,
                "position": {"task": self.task, "epoch": self.epoch},
                "config": self.cfg.dump(),
                "results": self.results,
            },
        )
        self.saved_at = time.monotonic()


def spread(count: int, most: int) -> np.ndarray:
    """At most so many of ``count`` places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def peak_memory_mib(device: torch.device) -> int:
    """The most memory that this process has held so far, in MiB: on the GPU where it works on one."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))
