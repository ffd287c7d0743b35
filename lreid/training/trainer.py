"""The loop: task after task, epoch after epoch, and a look at every test set in between."""

from __future__ import annotations

import logging
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from yacs.config import CfgNode

from lreid.checkpoint import fitting
from lreid.config import find_config
from lreid.data.images import require_files
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader, naming_dead_workers, progress_of
from lreid.data.records import Benchmark, Task
from lreid.data.transforms import Augment
from lreid.errors import InputError, Stopped
from lreid.evaluation import AccuracyEvaluator, Evaluator, accuracy_line, append_rows, summarise
from lreid.methods import Method
from lreid.models.precision import teacher_divergence
from lreid.training import distributed
from lreid.training.run_folder import RunFolder
from lreid.training.schedule import decay_factor
from lreid.training.signals import StopSignals
from lreid.training.switch import SwitchWatch
from lreid.training.task_data import task_batches, task_sampler
from lreid.training.updates import NotFinite, Updates

logger = logging.getLogger("lreid")

HISTORY_POINTS = 50  # loss values kept per task


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
        stop: signals to end the run by.
    """

    def __init__(
        self,
        method: Method,
        benchmark: Benchmark,
        evaluator: Evaluator,
        folder: RunFolder,
        results: dict[str, Any],
        cfg: CfgNode,
        device: torch.device,
        accuracy: AccuracyEvaluator | None = None,
        stop: StopSignals | None = None,
    ) -> None:
        self.method, self.benchmark, self.evaluator = method, benchmark, evaluator
        self.folder, self.results, self.cfg, self.device = folder, results, cfg, device
        self.accuracy, self.stop = accuracy, stop or StopSignals()
        self.augment = Augment(
            flip=cfg.INPUT.FLIP,
            erasing=cfg.INPUT.ERASING,
            mean=cfg.INPUT.MEAN,
            std=cfg.INPUT.STD,
            pipeline=cfg.INPUT.PIPELINE and find_config(cfg.INPUT.PIPELINE),
        )
        # Made up front, so that a task that is too small is found before hours are spent on those before it.
        self.epoch_steps = [
            task_sampler(cfg, method, task, [record.pid for record in task.records]).batches_per_epoch
            for task in benchmark.tasks
        ]
        # Position: the task at hand, its epochs that are done, and the steps of the next epoch that are.
        self.task, self.epoch, self.step = 0, 0, 0
        self.updates_state: dict[str, Any] | None = None
        self.saved_at, self.unsaved = time.monotonic(), 0  # steps since then
        self.clock = (time.perf_counter(), time.process_time())

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Takes the position and the optimiser of a checkpoint; model, method and results are in place."""
        position = checkpoint["position"]
        self.task, self.epoch, self.step = position["task"], position["epoch"], position["step"]
        self.updates_state = checkpoint["updates"]
        tasks = self.epoch_steps[self.task : self.task + 1]  # none where the run had ended
        if self.epoch > self.cfg.TRAIN.EPOCHS or any(self.step >= steps for steps in tasks):
            raise ValueError(f"position {checkpoint['position']} is beyond the end of the task")

    def run(self) -> None:
        """Trains what is left of the benchmark."""
        if not self.cfg.DATA.SKIP_BAD_IMAGES:  # a file that is missing is told now, not tasks later
            for task in self.benchmark.tasks[self.task :]:
                require_files(task.records)
        epochs, steps = self.cfg.TRAIN.EPOCHS, self.epoch_steps
        done = epochs * sum(steps[: self.task]) + sum(steps[self.task : self.task + 1]) * self.epoch + self.step
        # One bar for the whole run, so that the time left is that of all tasks; none where nobody looks at it.
        quiet = True if not self.folder.writes else None
        self.bar = tqdm(total=epochs * sum(steps), initial=done, unit="step", disable=quiet, leave=False)
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
                self.folder.save_task(task.index, self._state())
                self._report()

    def _train_task(self, task: Task) -> None:
        epochs = self.cfg.TRAIN.EPOCHS
        if self.epoch == 0 and self.step == 0:
            self.method.begin_task(task)
        if self.epoch == epochs:  # the run broke off between training and evaluation
            self._set_augmentation(epochs - 1)  # end_task may need it
            self.updates_state = None
            return
        batches = task_batches(
            self.cfg, self.method, task, self.augment, first=self.epoch * self.epoch_steps[task.index] + self.step
        )
        self._note_skipped(task, batches)
        steps, begins = self.cfg.EVAL.DRIFT_STEPS, self.epoch == 0 and self.step == 0
        watch = SwitchWatch(self.method, self.evaluator, task, steps) if steps and begins and task.index else None
        updates = self._updates()
        name = f"task {task.index + 1}/{len(self.benchmark.tasks)}"
        self.bar.set_description(name)
        exemplars = len(batches.images) - len(self._readable(task).records)
        logger.info(
            "%s: %s, %d identities, %d images%s",
            name,
            task.name,
            len(task.classes),
            len(batches.images) - exemplars,
            f" and {exemplars} exemplars" if exemplars else "",
        )
        with self.stop.deferred(), naming_dead_workers(self.cfg.DATA.WORKERS):
            self._train_epochs(batches, updates, watch)

    def _train_epochs(self, batches: TaskBatches, updates: Updates, watch: SwitchWatch | None) -> None:
        """What is left of a task, from the position on."""
        cuda = self.device.type == "cuda"
        loader = batch_loader(batches, workers=self.cfg.DATA.WORKERS, pin_memory=cuda)
        told = str(self.task) in self.results["teacher_divergence"]  # before the run was taken up again
        if self.method.model.teacher_precision is not None and not told:
            loader = self._watching_the_teacher(loader)
        self.clock = (time.perf_counter(), time.process_time())
        try:
            while self.epoch < self.cfg.TRAIN.EPOCHS:
                self._train_epoch(loader, updates, watch, steps=batches.sampler.batches_per_epoch)
        except NotFinite as fault:
            self._stop_at(fault)
        if watch is not None:
            watch.write(self.results)
        self._save(updates)

    def _train_epoch(
        self, loader: Iterator[Batch], updates: Updates, watch: SwitchWatch | None = None, *, steps: int
    ) -> None:
        train, stream = self.cfg.TRAIN, self.cfg.STREAM
        rate = train.LR * decay_factor(
            self.epoch,
            train.EPOCHS,
            start=train.DECAY_START,
            end=train.DECAY_FACTOR,
            warmup=train.WARMUP_EPOCHS,
            shape=train.SCHEDULE,
        )
        updates.set_rate(rate)
        self._set_augmentation(self.epoch)
        self.method.model.train()
        while self.step < steps:
            group = [next(loader) for _ in range(min(train.ACCUMULATE, steps - self.step))]
            group = [batch.to(self.device, self.augment) for batch in group]
            seen = updates.images + self.method.replayed
            for _ in range(stream.ITERATIONS):
                updates.update(group, watch.gradients if watch else None)
                if watch is not None:
                    watch.drift.after_step()
            for batch in group:
                self.method.end_step(batch)
            self.results["images_trained"] += updates.images + self.method.replayed - seen
            self.results["steps_trained"] += stream.ITERATIONS
            self.step += len(group)
            self.unsaved += len(group)
            self.bar.update(len(group))
            if self.step < steps:
                self._save_if_due(updates)
        self.epoch, self.step = self.epoch + 1, 0
        if self.epoch % max(1, train.EPOCHS // HISTORY_POINTS) == 0 or self.epoch == train.EPOCHS:
            self._record(updates, rate)
        if self.epoch < train.EPOCHS:
            self._save_if_due(updates)

    def _record(self, updates: Updates, rate: float) -> None:
        """Puts down what the losses have been since the last time."""
        updates.check()
        losses = updates.read()
        self._read_clock()
        self.bar.set_postfix({name: f"{value:.3f}" for name, value in losses.items()}, refresh=False)
        entry = {"task": self.task, "epoch": self.epoch, "lr": rate, **losses}
        self.results["loss_history"].append(entry)
        self.folder.log_scalars(entry, step=self.task * self.cfg.TRAIN.EPOCHS + self.epoch)

    def _read_clock(self) -> None:
        """Adds the time since the last look to that of the training; on a busy machine CPU time is the truer one."""
        now = (time.perf_counter(), time.process_time())
        for name, before, after in zip(("train", "train_cpu"), self.clock, now, strict=True):
            self.results["seconds"][name] += after - before
        self.clock = now

    def _updates(self) -> Updates:
        """Fresh for every task, as in the official code; as it was where the run is taken up again within one."""
        train = self.cfg.TRAIN
        updates = Updates(
            self.method,
            optimizer=train.OPTIMIZER,
            momentum=train.MOMENTUM,
            weight_decay=train.WEIGHT_DECAY,
            fp16=train.PRECISION == "fp16",
            device=self.device,
        )
        if self.updates_state is not None:
            with fitting(self.folder.checkpoints):
                updates.load_state_dict(self.updates_state)
            self.updates_state = None
        return updates

    def _watching_the_teacher(self, loader: Iterator[Batch]) -> Iterator[Batch]:
        """The batches; of the first, says what the precision of the teacher changes."""
        first = next(loader)
        teacher = getattr(self.method, "teacher", None)
        if teacher is not None:
            nats = teacher_divergence(teacher, first.to(self.device, self.augment).images)
            self.results["teacher_divergence"][str(self.task)] = nats
            logger.info("TRAIN.TEACHER_PRECISION: KL of %.4f nats from what a teacher in fp32 says", nats)
        yield first
        yield from loader

    def _note_skipped(self, task: Task, batches: TaskBatches) -> None:
        images = batches.images.images if isinstance(batches.images, WithExemplars) else batches.images
        if images.skipped:
            self.results["skipped"] = sorted({*self.results["skipped"], *images.skipped})
            logger.warning("%s: skipped %d images: %s", task.name, len(images.skipped), ", ".join(images.skipped))

    def _readable(self, task: Task) -> Task:
        """The task without the images that were skipped."""
        skipped = set(self.results["skipped"])
        return replace(task, records=tuple(each for each in task.records if each.path not in skipped))

    def _set_augmentation(self, epoch: int) -> None:
        """Tells the method how images are augmented that it draws by itself."""
        self.method.augment = partial(self.augment, progress=progress_of(epoch, self.cfg.TRAIN.EPOCHS))

    def _stop_at(self, fault: NotFinite) -> NoReturn:
        """Ends the run at a loss that is not finite, without touching what is saved."""
        where = f"epoch {self.epoch + 1}, step {self.step + 1} of task {self.task + 1}"
        images = ""
        if fault.paths:
            listed = self.folder.list_images(fault.paths)
            images = f", computed from {fault.paths[0]} and others, listed in {listed}"
        raise InputError(
            f"the loss is not finite in {where} ({fault}{images}); lower TRAIN.LR and start again with another --out; "
            f"the checkpoints in {self.folder.checkpoints} are from before it"
        )

    def _evaluate(self, task: Task) -> None:
        started = time.perf_counter()
        figures = self.evaluator.evaluate(self.method.model, once=distributed.by_the_first)
        if self.accuracy is not None:
            append_rows(self.results, self.accuracy.evaluate(self.method, self._readable(task)))
            self.results["alignment"].append(self.accuracy.alignment(self.method, task))
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

    def _save_if_due(self, updates: Updates) -> None:
        """Saves by time and by steps, and when the run is to end, which it then does.

        Raises:
            Stopped: a signal has come, to this process or to another one of the run.
        """
        steps, minutes = self.cfg.TRAIN.CHECKPOINT_STEPS, self.cfg.TRAIN.CHECKPOINT_MINUTES
        waited = time.monotonic() - self.saved_at >= 60 * minutes
        due = waited if minutes > 0 else self.step == 0  # 0 stands for every epoch
        stopping = distributed.any_of(self.stop.received is not None)
        if stopping or due or (steps and self.unsaved >= steps):
            self._save(updates)
        if stopping:
            raise Stopped(self.stop.received or signal.SIGTERM)

    def _save(self, updates: Updates) -> None:
        updates.check_parameters()
        self._read_clock()
        self.folder.save_current(self._state(updates))
        self.saved_at, self.unsaved = time.monotonic(), 0

    def _state(self, updates: Updates | None = None) -> dict[str, Any]:
        """Of a checkpoint."""
        return {
            "model": self.method.model.state_dict(),
            "method": self.method.state_dict(),
            "updates": updates.state_dict() if updates is not None else None,
            "position": {"task": self.task, "epoch": self.epoch, "step": self.step},
            "config": self.cfg.dump(),
            "results": self.results,
        }


def peak_memory_mib(device: torch.device) -> int:
    """The most memory that this process has held so far, in MiB: on the GPU where it works on one."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))
