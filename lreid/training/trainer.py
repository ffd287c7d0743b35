"""The training loop over tasks, epochs and batches, with an evaluation on all test sets after each task."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

from lreid.checkpoint import fitting
from lreid.data.images import require_files, unreadable
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader, naming_dead_workers, progress_of
from lreid.data.records import Benchmark, Task
from lreid.errors import Stopped, counted
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.observer import Observer
from lreid.methods import Method
from lreid.models.embedder import Embedder
from lreid.results import Results, TestFigures, add_initial, add_task, last_figures
from lreid.results import write as write_results
from lreid.training import distributed
from lreid.training.batches import Batching
from lreid.training.progress import Costs, LossHistory, Progress
from lreid.training.run_folder import RunFolder
from lreid.training.signals import StopSignals
from lreid.training.updates import Schedule, Updates
from lreid.utils.devices import peak_memory_mib

logger = logging.getLogger("lreid")

SIGNAL_CHECK_EVERY = 10  # steps between two checks of several processes for a signal that one of them received


@dataclass
class Position:
    """Position of a run: current task, finished epochs of the task, finished batches of the current epoch."""

    task: int = 0
    epoch: int = 0
    step: int = 0

    @property
    def starts_task(self) -> bool:
        """Whether no batch of the task is finished."""
        return self.epoch == self.step == 0


class Trainer:
    """Trains a method on a benchmark.

    Args:
        method: the method with its network, on its device.
        benchmark: tasks and test sets.
        evaluator: object that evaluates the network on the test sets.
        folder: run folder, to which the trainer writes all files.
        results: content of ``results.json``; the trainer adds its results.
        batching: options of the training batches.
        stop: signals that end the run.

    Attributes:
        at: current position of the run.
        observers: observers by name. A checkpoint stores each observer's state under its name, so add observers before
            :meth:`run`.
        unfused: whether the network is also evaluated before :meth:`~lreid.methods.base.Method.finish_task` changes it.
        initial: model to evaluate before the first task.
    """

    def __init__(
        self,
        method: Method,
        benchmark: Benchmark,
        evaluator: Evaluator,
        folder: RunFolder,
        results: Results,
        *,
        batching: Batching,
        stop: StopSignals | None = None,
    ) -> None:
        self.method, self.benchmark, self.evaluator = method, benchmark, evaluator
        self.folder, self.results, self.batching = folder, results, batching
        self.options, self.device = batching.train, method.model.mean.device
        self.schedule, self.stop = Schedule(self.options), stop or StopSignals()
        self.unfused = False
        self.initial: Embedder | None = None
        self.epochs = [batching.epochs_of(task.index) for task in benchmark.tasks]
        # Computed now, so that a later task that is too small raises an error before hours of training.
        self.epoch_steps = [batching.epoch_steps(method, task) if task.records else 0 for task in benchmark.tasks]
        self.at = Position()
        self.saved: dict[str, Any] = {}  # the checkpoint that the run resumes from, until its task starts
        self.saved_at, self.unsaved = time.monotonic(), 0  # time of the last checkpoint, and number of steps since
        self.unchecked = 0  # steps since processes checked for signals
        self.costs = Costs(results, method.model)
        task_steps = [epochs * steps for epochs, steps in zip(self.epochs, self.epoch_steps, strict=True)]
        self.progress = Progress(results, task_steps, shown=folder.writes)
        history = LossHistory(results, folder.log, self.epochs)
        self.observers: dict[str, Observer] = {"history": history, "progress": self.progress}

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Continue from a checkpoint's position; the caller restores model, method and results before this call."""
        self.at, self.saved = Position(**checkpoint["position"]), checkpoint
        for task in self.benchmark.tasks[self.at.task : self.at.task + 1]:
            self._count_steps(task)
        remaining = slice(self.at.task, self.at.task + 1)  # empty if the run was finished
        tasks = zip(self.epochs[remaining], self.epoch_steps[remaining], strict=True)
        if any(self.at.epoch > epochs or self.at.step >= steps for epochs, steps in tasks):
            raise ValueError(f"position {checkpoint['position']} is beyond the end of the task")

    def inherit_task(self) -> None:
        """Evaluate the model that another run trained on the first task, and save it as the result of this task."""
        self._evaluate_task(self.benchmark.tasks[0])
        self.at = Position(1)
        self.folder.save_task(0, self._state())

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Train the remaining tasks of the benchmark."""
        remaining = self.benchmark.tasks[self.at.task :]
        if not self.batching.data.SKIP_BAD_IMAGES:  # report a missing file now, not tasks later
            for task in remaining:
                require_files(task.records)
        with self.progress.bar_from(self._finished_steps()):
            if self.initial is not None:
                self.progress.begin("evaluating the initial model")
                add_initial(self.results, self._evaluate(self.initial))
            if self.results["mAP"]:  # a resumed run may have stopped before it wrote the report
                self._report()
            for task in remaining:
                with self.costs:
                    self._begin(task)
                    self._train(task)
                unfused = self._finish(task)
                self._evaluate_task(task, unfused)
                with self.costs:
                    self.method.end_task(self._readable(task))
                self._save_task(task)

    def _begin(self, task: Task) -> None:
        """Let the method prepare a task, unless the run resumes within it."""
        if self.at.starts_task:
            if self.batching.data.SKIP_BAD_IMAGES:
                self._skip(unreadable(task.records))
            self.method.begin_task(self._readable(task))

    def _train(self, task: Task) -> None:
        """Train a task from the current position to its end."""
        epochs, steps, saved = self.epochs[task.index], self._count_steps(task), self.saved
        self.saved = {}
        if self.at.epoch == epochs:  # the run stopped between training and evaluation
            self._restore_observers(task, saved)
            self._augment_at(epochs - 1, epochs)  # end_task may need the augmentation
            return
        batches = self.batching.batches(self.method, task, first=self.at.epoch * steps + self.at.step)
        self._announce(task, batches)
        self._restore_observers(task, saved)
        updates = self.begin_updates(saved)
        loader = batch_loader(batches, workers=self.batching.data.WORKERS, pin_memory=self.device.type == "cuda")
        # A signal waits for the end of a step, so that a saved state is consistent.
        with self.stop.deferred(), naming_dead_workers(self.batching.data.WORKERS):
            while self.at.epoch < epochs:
                updates.set_rates(partial(self.schedule.rate, task.index, self.at.epoch, self.epochs))
                self._augment_at(self.at.epoch, epochs)
                self.method.model.train()
                while self.at.step < steps:
                    self.step(loader, updates, min(self.options.ACCUMULATE, steps - self.at.step))
                    if self.at.step < steps:
                        self._save_if_due(updates)
                self.at.epoch, self.at.step = self.at.epoch + 1, 0
                updates.check()
                for observer in self.observers.values():
                    observer.after_epoch(self.at.epoch, epochs, updates.rate)
                if self.at.epoch < epochs:
                    self._save_if_due(updates)
            for observer in self.observers.values():
                observer.after_task(task)
            updates.finish()
            self._save(updates)

    def _count_steps(self, task: Task) -> int:
        """Count the steps per epoch of a task again: in a stream, exemplars are part of an epoch."""
        steps = self.epoch_steps[task.index] = self.batching.epoch_steps(self.method, task)
        self.progress.task_steps[task.index] = steps * self.epochs[task.index]
        self.progress.bar.total = sum(self.progress.task_steps)
        return steps

    def step(self, loader: Iterator[Batch], updates: Updates, count: int = 1) -> None:
        """Make ``STREAM.ITERATIONS`` updates (default 1), each by the mean gradient of the next ``count`` batches."""
        batches = [next(loader).to(self.device, self.batching.augment) for _ in range(count)]
        for batch, observer in product(batches, self.observers.values()):
            observer.before_batch(batch)
        for _ in range(self.batching.stream.ITERATIONS):
            updates.update(batches, tuple(self.observers.values()))
        for batch in batches:
            self.method.end_step(batch)
        self.results["steps_trained"] += self.batching.stream.ITERATIONS
        self.at.step += count
        self.unsaved += count
        self.unchecked += count

    def _finish(self, task: Task) -> list[TestFigures]:
        """Let the method change the network after the last update; with ``unfused``, return the metrics before this."""
        figures: list[TestFigures] = []
        if type(self.method).finish_task is not Method.finish_task:
            if self.unfused:
                figures = self._evaluate(self.method.model)
            self.progress.begin(self.method.finishing, task.index)
        with self.costs:
            self.method.finish_task(self._readable(task))
        return figures

    def _evaluate(self, model: Embedder, task: int | None = None) -> list[TestFigures]:
        started = time.perf_counter()
        self.folder.may_write()  # the evaluator stores gallery features in it
        figures = self.evaluator.evaluate(model, once=distributed.in_first_process, task=task)
        self.results["seconds"]["evaluate"] += time.perf_counter() - started
        return figures

    def _evaluate_task(self, task: Task, unfused: Sequence[TestFigures] = ()) -> None:
        images = sum(len(test.query) + len(test.gallery) for test in self.evaluator.tests)
        self.progress.begin(f"evaluating {counted(images, 'test image')}", task.index)
        figures = self._evaluate(self.method.model, task.index)
        self.results["peak_memory_mib"] = max(self.results["peak_memory_mib"], peak_memory_mib(self.device))
        add_task(self.results, figures, unfused)
        for observer in self.observers.values():
            observer.after_evaluation(task)

    # ------------------------------------------------------------ around it

    def begin_updates(self, saved: Mapping[str, Any] = MappingProxyType({})) -> Updates:
        """Create a new optimiser for a task; if the run resumes within the task, restore the optimiser's state."""
        updates = Updates(self.method, self.options)
        if saved.get("updates") is not None:
            with fitting(self.folder.checkpoints):
                updates.load_state_dict(saved["updates"])
        return updates

    def _restore_observers(self, task: Task, saved: Mapping[str, Any]) -> None:
        """Let the observers prepare a task. If a run resumes within a task, restore the observers' states."""
        for name, observer in self.observers.items():
            if self.at.starts_task:
                observer.before_task(task)
            elif name in saved["observers"]:
                with fitting(self.folder.checkpoints):
                    observer.load_state_dict(saved["observers"][name])

    def _augment_at(self, epoch: int, epochs: int) -> None:
        """Set the augmentation that the method applies to images from its memory; it can depend on the epoch."""
        self.method.augment = partial(self.batching.replayed, progress=progress_of(epoch, epochs))

    def _announce(self, task: Task, batches: TaskBatches) -> None:
        """Log the size of a task, and its images that cannot be read."""
        images = batches.images.images if isinstance(batches.images, WithExemplars) else batches.images
        if images.skipped:
            self._skip(images.skipped)
            count = counted(len(images.skipped), "image")
            logger.warning("%s: skipped %s: %s", task.name, count, ", ".join(images.skipped))
        sizes = [counted(len(task.classes), "identity"), counted(len(images), "image")]
        if exemplars := len(batches.images) - len(images):
            sizes[-1] += f" and {counted(exemplars, 'exemplar')}"
        name = f"task {task.index + 1}/{len(self.benchmark.tasks)}"
        self.progress.bar.set_description(name)
        logger.info("%s: %s, %s", name, task.name, ", ".join(sizes))

    def _skip(self, paths: Sequence[str]) -> None:
        """Add the paths of images that cannot be read to the results."""
        self.results["skipped"] = sorted({*self.results["skipped"], *paths})

    def _readable(self, task: Task) -> Task:
        """Return the task without images that cannot be read."""
        skipped = set(self.results["skipped"])
        return replace(task, records=tuple(each for each in task.records if each.path not in skipped))

    def _finished_steps(self) -> int:
        steps_per_epoch = sum(self.epoch_steps[self.at.task : self.at.task + 1])  # 0 after the last task
        return sum(self.progress.task_steps[: self.at.task]) + steps_per_epoch * self.at.epoch + self.at.step

    # ------------------------------------------------------------ checkpoints and results

    def _save_if_due(self, updates: Updates) -> None:
        """Save a checkpoint if it is time for the next one, or if a signal ends the run."""
        steps, minutes = self.options.CHECKPOINT_STEPS, self.options.CHECKPOINT_MINUTES
        waited = time.monotonic() - self.saved_at >= 60 * minutes
        due = waited if minutes > 0 else self.at.step == 0  # 0 means every epoch
        stopping = False
        if distributed.world() == 1 or self.unchecked >= SIGNAL_CHECK_EVERY:  # all processes check in the same step
            stopping = distributed.any_of(self.stop.received is not None)
            self.unchecked = 0
        if stopping or due or (steps and self.unsaved >= steps):
            self._save(updates)
        if stopping:
            raise Stopped(self.stop.received or signal.SIGTERM)

    def _save(self, updates: Updates) -> None:
        updates.check_parameters()
        self.costs.read()
        self.folder.save_current(self._state(updates))
        self.costs.start()  # a checkpoint is no training
        self.saved_at, self.unsaved = time.monotonic(), 0

    def _save_task(self, task: Task) -> None:
        """Save and report a finished task."""
        self.progress.begin("writing checkpoint and report", task.index)
        self.results["exemplars"] = self.method.exemplars
        identities = {each for done in self.benchmark.tasks[: task.index + 1] for each in done.classes}
        self.results["stored"] = self.method.stored(len(identities))
        self.results["method_figures"] = self.method.figures()
        self.results["exemplar_bytes"] = self.method.memory.nbytes if self.method.memory else 0
        self.at = Position(task.index + 1)
        self.folder.save_task(task.index, self._state())
        self._report()

    def _report(self) -> None:
        """Write the results so far, and let observers and loggers report them; only one process does this."""
        if not self.folder.may_write():
            return
        write_results(self.folder.path / "results.json", self.results)
        for observer in self.observers.values():
            observer.after_save(self.folder.path, self.results)
        summary = {f"summary/{name}": value for name, value in self.results["summary"].items() if value is not None}
        self.folder.log(summary | last_figures(self.results), len(self.results["mAP"]), "task")

    def _state(self, updates: Updates | None = None) -> dict[str, Any]:
        """Collect the state for a checkpoint."""
        return {
            "model": self.method.model.state_dict(),
            "method": self.method.state_dict(),
            "updates": updates.state_dict() if updates is not None else None,
            "observers": {name: observer.state_dict() for name, observer in self.observers.items()},
            "position": vars(self.at),
            "config": self.folder.config,
            "results": self.results,
        }
