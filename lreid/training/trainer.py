"""The training loop over tasks, epochs and batches, with an evaluation on all test sets after each task."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from lreid import results as ledger
from lreid.checkpoint import fitting
from lreid.data.images import require_files, unreadable
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader, naming_dead_workers, progress_of
from lreid.data.records import Benchmark, Task
from lreid.errors import Stopped, counted
from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.observer import Observer
from lreid.methods import Method
from lreid.models.embedder import Embedder
from lreid.results import Results
from lreid.training import distributed
from lreid.training.batches import Batching
from lreid.training.history import History
from lreid.training.run_folder import RunFolder
from lreid.training.signals import StopSignals
from lreid.training.updates import Schedule, Updates
from lreid.utils.devices import peak_memory_mib

if TYPE_CHECKING:
    from lreid.training.pseudo_labels import PseudoLabels

logger = logging.getLogger("lreid")

ASK_EVERY = 10  # steps between two checks of several processes for a signal that one of them received

BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps [{elapsed}{postfix}]"
FORWARD_SHARE = 3  # a training step costs about three times as much as its forward pass
TOLD_EVERY = 30.0  # seconds between two progress lines if there is no progress bar
SHOWN_EVERY = 10.0  # minimum seconds between two updates of the progress page
QUIET, QUIET_EPOCHS = 600.0, 3  # a page counts a run as stopped after this many seconds and epochs without updates


@dataclass
class Position:
    """Position of a run: current task, finished epochs of the task, finished batches of the current epoch."""

    task: int = 0
    epoch: int = 0
    step: int = 0


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
        labelled: share of each task's identities whose annotated labels are used; images of other identities get
            pseudo-labels.

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
        labelled: float = 1.0,
    ) -> None:
        self.method, self.benchmark, self.evaluator = method, benchmark, evaluator
        self.folder, self.results, self.unfused = folder, results, False
        self.batching, self.train, self.device = batching, batching.train, method.model.mean.device
        self.schedule = Schedule(self.train)
        self.stop = stop or StopSignals()
        self.epochs = [batching.epochs_of(task.index) for task in benchmark.tasks]
        self.observers: dict[str, Observer] = {"history": History(results, folder.log_scalars, self.epochs)}
        # Computed now, so that a later task that is too small raises an error before hours of training.
        steps: Callable[[Task], int] = partial(batching.epoch_steps, method)
        self.pseudo_labels: PseudoLabels | None = None
        if labelled < 1:
            from lreid.training.pseudo_labels import PseudoLabels

            self.pseudo_labels = PseudoLabels(method, batching, benchmark, labelled)
            steps = self.pseudo_labels.steps
        self.epoch_steps = [steps(task) if task.records else 0 for task in benchmark.tasks]
        self.at = Position()
        self.saved: dict[str, Any] = {}  # the checkpoint that the run resumes from, until its task starts
        self.initial: Embedder | None = None
        self.bar = tqdm(disable=True)
        self.started, self.shown_at, self.reported_at = time.monotonic(), 0.0, time.monotonic()
        self.test_images = sum(len(test.query) + len(test.gallery) for test in evaluator.tests)
        self.image_seconds = 0.0  # per test image; 0 before the first evaluation
        self.finished: list[float] = []  # seconds from the last step of each finished task to its end
        self.steps_then = 0  # finished steps at the start of the run
        self.saved_at, self.unsaved = time.monotonic(), 0  # time of the last checkpoint, and number of steps since
        self.unasked = 0  # steps since processes checked for signals
        self.clock = (time.perf_counter(), time.process_time())

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Continue from a checkpoint's position; the caller restores model, method and results before this call.

        Raises:
            ValueError: the position is beyond the end of the task.
        """
        self.at, self.saved = Position(**checkpoint["position"]), checkpoint
        remaining = slice(self.at.task, self.at.task + 1)  # empty if the run was finished
        tasks = zip(self.epochs[remaining], self.epoch_steps[remaining], strict=True)
        if any(self.at.epoch > epochs or self.at.step >= steps for epochs, steps in tasks):
            raise ValueError(f"position {checkpoint['position']} is beyond the end of the task")

    def take_over(self) -> None:
        """Evaluate the model that another run trained on the first task, and save it as the result of this task."""
        self._evaluate(self.benchmark.tasks[0])
        self.at = Position(1)
        self.folder.save_task(0, self._state())

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Train the remaining tasks of the benchmark."""
        remaining = self.benchmark.tasks[self.at.task :]
        if not self.batching.data.SKIP_BAD_IMAGES:  # report a missing file now, not tasks later
            for task in remaining:
                require_files(task.records)
        self.bar = self._progress()
        with logging_redirect_tqdm(), self.bar:
            self._evaluate_initial()
            self.started, self.steps_then = time.monotonic(), self._steps_done
            if self.results["mAP"]:  # a resumed run may have stopped before it wrote the report
                self._report()
            for task in remaining:
                learned = self._start_task(task)
                if learned is not None:
                    learned = self._train(learned)
                ended = time.monotonic()
                trained: list[TestFigures] = []
                if learned is not None:
                    trained = self._evaluated_before_fusion()
                    if type(self.method).finish_task is not Method.finish_task:
                        self._say(self.method.finishing)
                    self.method.finish_task(self._readable(learned))
                self._evaluate(task, trained)
                if learned is not None:
                    self.method.end_task(self._readable(learned))
                self._say("writing checkpoint and report")
                self._close(task)
                self.finished.append(time.monotonic() - ended)
                if self.at.task < len(self.epochs):
                    self._show_progress()

    def _start_task(self, task: Task) -> Task | None:
        """Begin or resume a task; return it with its labels, or None if pseudo-labels have too few clusters."""
        if self.at.epoch or self.at.step:
            if self.pseudo_labels is None:
                return task
            with fitting(self.folder.checkpoints):
                self.pseudo_labels.load_state_dict(self.saved["pseudo_labels"], task)
            return self.pseudo_labels.current
        if self.batching.data.SKIP_BAD_IMAGES:
            self._leave_out(unreadable(task.records))
        learned = self._readable(task)
        if self.pseudo_labels is not None:
            relabelled = self.pseudo_labels.begin(learned)
            if relabelled is None:
                return None
            learned = relabelled
        self.method.begin_task(learned)
        return learned if self.pseudo_labels else task

    def _train(self, task: Task) -> Task | None:
        """Train a task from the current position to its end.

        Returns:
            The task with the labels of its last epoch, or None if pseudo-labels failed and the model was restored.
        """
        epochs, steps, done = self.epochs[task.index], self.epoch_steps[task.index], self.saved
        self.saved = {}
        if self.at.epoch == epochs:  # the run stopped between training and evaluation
            self._restore_observers(task, done)
            self._augment_at(epochs - 1, epochs)  # end_task may need the augmentation
            return task
        batches = self._batches(task)
        self._announce(task, batches)
        self._restore_observers(task, done)
        updates = self.begin_updates(done)
        loader = batch_loader(batches, workers=self.batching.data.WORKERS, pin_memory=self.device.type == "cuda")
        self.clock = (time.perf_counter(), time.process_time())
        # A signal waits for the end of a step, so that a saved state is consistent.
        with self.stop.deferred(), naming_dead_workers(self.batching.data.WORKERS):
            while self.at.epoch < epochs:
                if self.pseudo_labels and self.at.epoch and not self.at.step:
                    relabelled = self.pseudo_labels.refresh()
                    if relabelled is None:
                        self.pseudo_labels.undo()
                        return None
                    task = relabelled
                    loader = batch_loader(self._batches(task), workers=0, pin_memory=self.device.type == "cuda")
                updates.set_rates(partial(self.schedule.rate, task.index, self.at.epoch, self.epochs))
                self._augment_at(self.at.epoch, epochs)
                self.method.model.train()
                while self.at.step < steps:
                    self.step(loader, updates, min(self.train.ACCUMULATE, steps - self.at.step))
                    if self.at.step < steps:
                        self._save_if_due(updates)
                self.at.epoch, self.at.step = self.at.epoch + 1, 0
                updates.check()
                for observer in self.observers.values():
                    observer.after_epoch(self.at.epoch, epochs, updates.rate)
                self._show_status()
                if time.monotonic() - self.shown_at >= SHOWN_EVERY:
                    self._show_progress()
                if self.at.epoch < epochs:
                    self._save_if_due(updates)
            for observer in self.observers.values():
                observer.after_task(task)
            self._save(updates)
        return task

    def _batches(self, task: Task) -> TaskBatches:
        """Create the remaining batches of a task, from the current position."""
        first = self.at.epoch * self.epoch_steps[task.index] + self.at.step
        if self.pseudo_labels is not None:
            return self.pseudo_labels.batches(first)
        return self.batching.batches(self.method, task, first=first)

    def step(self, loader: Iterator[Batch], updates: Updates, count: int = 1) -> None:
        """Make ``STREAM.ITERATIONS`` updates (default 1), each by the mean gradient of the next ``count`` batches."""
        batches = [next(loader).to(self.device, self.batching.augment) for _ in range(count)]
        images_before = updates.images + self.method.replayed
        for batch, observer in product(batches, self.observers.values()):
            observer.before_batch(batch)
        for _ in range(self.batching.stream.ITERATIONS):
            updates.update(batches, tuple(self.observers.values()))
        for batch in batches:
            self.method.end_step(batch)
        if self.pseudo_labels is not None:
            self.pseudo_labels.after_step()
        self.results["images_trained"] += updates.images + self.method.replayed - images_before
        self.results["steps_trained"] += self.batching.stream.ITERATIONS
        self.at.step += count
        self.unsaved += count
        self.unasked += count
        self.bar.update(count)

    def _evaluate_initial(self) -> None:
        if self.initial is None:
            return
        self._say("evaluating the initial model", of_task=False)
        started = time.perf_counter()
        ledger.add_initial(self.results, self.evaluator.evaluate(self.initial, once=distributed.by_the_first))
        self._count_evaluation(time.perf_counter() - started)
        self.initial = None

    def _count_evaluation(self, seconds: float) -> None:
        self.results["seconds"]["evaluate"] += seconds
        self.image_seconds = seconds / max(self.test_images, 1)

    def _evaluated_before_fusion(self) -> list[TestFigures]:
        """With ``unfused``, evaluate the network before ``finish_task``, if the method has its own ``finish_task``."""
        started = time.perf_counter()
        if not (self.unfused and type(self.method).finish_task is not Method.finish_task):
            return []
        figures = self.evaluator.evaluate(self.method.model, once=distributed.by_the_first)
        self.results["seconds"]["evaluate"] += time.perf_counter() - started
        return figures

    def _evaluate(self, task: Task, trained: Sequence[TestFigures] = ()) -> None:
        self._say(f"evaluating {counted(self.test_images, 'test image')}")
        started = time.perf_counter()
        self.folder.require_ours()  # gallery features are stored in it
        figures = self.evaluator.evaluate(self.method.model, once=distributed.by_the_first, task=task.index)
        self._count_evaluation(time.perf_counter() - started)
        self.results["peak_memory_mib"] = max(self.results["peak_memory_mib"], peak_memory_mib(self.device))
        ledger.add_task(self.results, figures, trained)
        for observer in self.observers.values():
            observer.after_evaluation(task)

    def _close(self, task: Task) -> None:
        """Save and report a finished task."""
        self.results["exemplars"] = self.method.exemplars
        identities = {each for done in self.benchmark.tasks[: task.index + 1] for each in done.classes}
        self.results["stored"] = self.method.stored(len(identities))
        self.results["method_figures"] = self.method.figures()
        self.results["exemplar_bytes"] = self.method.memory.nbytes if self.method.memory else 0
        self.at = Position(task.index + 1)
        self.folder.save_task(task.index, self._state())
        self._report()

    # ------------------------------------------------------------ around it

    def begin_updates(self, saved: Mapping[str, Any] = MappingProxyType({})) -> Updates:
        """Create a new optimiser for a task; if the run resumes within the task, restore the optimiser's state."""
        updates = Updates(self.method, self.train)
        if saved.get("updates") is not None:
            with fitting(self.folder.checkpoints):
                updates.load_state_dict(saved["updates"])
        return updates

    def _restore_observers(self, task: Task, saved: Mapping[str, Any]) -> None:
        """Let the observers prepare a task. If a run resumes within a task, restore the observers' states."""
        states = saved.get("observers", {})
        for name, observer in self.observers.items():
            if self.at.epoch == self.at.step == 0:
                observer.before_task(task)
            elif name in states:
                with fitting(self.folder.checkpoints):
                    observer.load_state_dict(states[name])

    def _augment_at(self, epoch: int, epochs: int) -> None:
        """Set the augmentation that the method applies to images from its memory; it can depend on the epoch."""
        self.method.augment = partial(self.batching.replayed, progress=progress_of(epoch, epochs))

    def _announce(self, task: Task, batches: TaskBatches) -> None:
        """Log the size of a task, and its images that cannot be read."""
        images = batches.images.images if isinstance(batches.images, WithExemplars) else batches.images
        if images.skipped:
            self._leave_out(images.skipped)
            count = counted(len(images.skipped), "image")
            logger.warning("%s: skipped %s: %s", task.name, count, ", ".join(images.skipped))
        name = f"task {task.index + 1}/{len(self.benchmark.tasks)}"
        self.bar.set_description(name)
        exemplars = len(batches.images) - len(images)
        logger.info(
            "%s: %s, %s, %s%s",
            name,
            task.name,
            counted(len({record.pid for record in task.records}), "identity"),
            counted(len(images), "image"),
            f" and {counted(exemplars, 'exemplar')}" if exemplars else "",
        )

    def _leave_out(self, paths: Sequence[str]) -> None:
        """Add the paths of images that cannot be read to the results."""
        self.results["skipped"] = sorted({*self.results["skipped"], *paths})

    def _readable(self, task: Task) -> Task:
        """Return the task without images that cannot be read."""
        skipped = set(self.results["skipped"])
        return replace(task, records=tuple(each for each in task.records if each.path not in skipped))

    def _progress(self) -> tqdm:
        """Create a progress bar for all steps of the run; outside a terminal, it is hidden.

        tqdm's estimate of the remaining time is not shown, because it ignores evaluations; :meth:`_left` includes them.
        """
        quiet = True if not self.folder.writes else None
        total, done = sum(self._task_steps), self._steps_done
        return tqdm(total=total, initial=done, unit="step", disable=quiet, leave=False, bar_format=BAR)

    def _say(self, phase: str, *, of_task: bool = True) -> None:
        """Show the current phase of the run on the progress bar, or in a log line if there is no bar."""
        name = f"task {self.at.task + 1}/{len(self.epochs)}: {phase}" if of_task else phase
        self.bar.set_description(name)
        if self.bar.disable:
            logger.info("%s", name)

    def _left(self) -> float:
        """Estimate the remaining seconds of the run from the mean times per step and after each task.

        During the first task, the time that a run needs after a task is not known yet. It is then estimated from the
        number of images that the method and the evaluation pass through the network.
        """
        tasks = self.benchmark.tasks[self.at.task :]
        trained = max(self._steps_done - self.steps_then, 1)
        step = (time.monotonic() - self.started - sum(self.finished)) / trained
        seconds = step * (sum(self._task_steps) - self._steps_done)
        if self.finished:
            return seconds + len(tasks) * sum(self.finished) / len(self.finished)
        images = self.results["images_trained"] / max(self.results["steps_trained"], 1)
        image = self.image_seconds or step / max(images, 1) / FORWARD_SHARE
        return seconds + image * sum(self.method.finishing_images(task) + self.test_images for task in tasks)

    @property
    def _task_steps(self) -> list[int]:
        return [epochs * steps for epochs, steps in zip(self.epochs, self.epoch_steps, strict=True)]

    @property
    def _steps_done(self) -> int:
        at = self.at
        return sum(self._task_steps[: at.task]) + sum(self.epoch_steps[at.task : at.task + 1]) * at.epoch + at.step

    def _show_progress(self) -> None:
        """Write the progress to the log and the report page as soon as the time per step is known."""
        from lreid.report.page import Progress

        task, done = self.at.task, self._steps_done - self.steps_then
        if not done:
            return
        step = (time.monotonic() - self.started - sum(self.finished)) / done  # seconds
        progress = Progress(
            task + 1,
            len(self.epochs),
            self.at.epoch,
            self.epochs[task],
            left=self._left(),
            at=time.time(),
            # The next evaluation should take no longer than all previous evaluations together.
            patience=QUIET + QUIET_EPOCHS * step * self.epoch_steps[task] + self.results["seconds"]["evaluate"],
        )
        self.shown_at = time.monotonic()
        aloud = self.bar.disable and self.shown_at - self.reported_at >= TOLD_EVERY
        self.reported_at = self.shown_at if aloud else self.reported_at
        self.folder.show_progress(self.results, progress, aloud=aloud)

    def _show_status(self) -> None:
        """Show the remaining time and the last loss terms to the right of the progress bar."""
        from lreid.report.tables import duration

        entry = self.results["loss_history"][-1:] or [{}]
        terms = {name: f"{value:.3f}" for name, value in entry[0].items() if name not in ("task", "epoch", "lr")}
        self.bar.set_postfix({"left": duration(self._left())} | terms, refresh=False)

    def _read_clock(self) -> None:
        """Add the elapsed time and the CPU time since the last call to the training time."""
        now = (time.perf_counter(), time.process_time())
        for name, before, after in zip(("train", "train_cpu"), self.clock, now, strict=True):
            self.results["seconds"][name] += after - before
        self.clock = now

    def _report(self) -> None:
        self.folder.write_results(self.results)
        self.folder.report_task(self.results)

    # ------------------------------------------------------------ checkpoints

    def _save_if_due(self, updates: Updates) -> None:
        """Save a checkpoint if it is time for the next one, or if a signal ends the run.

        Raises:
            Stopped: this process or another process of the run received a signal.
        """
        steps, minutes = self.train.CHECKPOINT_STEPS, self.train.CHECKPOINT_MINUTES
        waited = time.monotonic() - self.saved_at >= 60 * minutes
        due = waited if minutes > 0 else self.at.step == 0  # 0 means every epoch
        stopping = False
        if distributed.world() == 1 or self.unasked >= ASK_EVERY:  # all processes check in the same step
            stopping = distributed.any_of(self.stop.received is not None)
            self.unasked = 0
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
        """Collect the state for a checkpoint."""
        return {
            "model": self.method.model.state_dict(),
            "method": self.method.state_dict(),
            "updates": updates.state_dict() if updates is not None else None,
            "observers": {name: observer.state_dict() for name, observer in self.observers.items()},
            "position": vars(self.at),
            "config": self.folder.config,
            "results": self.results,
            **({"pseudo_labels": self.pseudo_labels.state_dict()} if updates and self.pseudo_labels else {}),
        }
