"""Plan and train the runs of a sweep: methods x benchmarks x seeds x values of keys."""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import Literal

import torch

from lreid.build import load_run_config
from lreid.config import CONFIGS, check_values, leaves, load_config, method_options, recorded_config
from lreid.config_keys import Config
from lreid.errors import InputError, Stopped, naming_keys
from lreid.methods import Method, build_method, method_class
from lreid.models.embedder import Embedder
from lreid.report.comparison import comparison_table, sensitivity_curve
from lreid.report.plots import learning_curve, save_figure
from lreid.report.tables import short_key
from lreid.results import read as read_results
from lreid.training.run import changed_keys
from lreid.training.run_folder import is_busy
from lreid.training.signals import LEASH, StopSignals
from lreid.utils.extras import imported
from lreid.utils.files import write_text
from lreid.utils.reading import read_text

logger = logging.getLogger("lreid")

# A run of a sweep always gets a config file. Without a config file, a resumed run would use the config of its start.
DEFAULT_CONFIG = CONFIGS / "benchmarks" / "synthetic-10.yaml"

OWN_OPTION = {"METHOD.NAME": "--methods", "SEED": "--seeds"}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: config files, ``KEY VALUE`` pairs that take precedence over them, and the run folder."""

    folder: Path
    files: tuple[Path, ...]
    overrides: tuple[str, ...]

    @property
    def cfg(self) -> Config:
        """The resolved config of the run."""
        return load_run_config(self.files, self.overrides, report=False)

    @property
    def command(self) -> list[str]:
        """The command line that trains or resumes the run."""
        given = [("--import", name) for name in imported.values()] + [("--config", str(file)) for file in self.files]
        train = [sys.executable, "-m", "lreid", "train"]
        return [*train, "--resume", "--out", str(self.folder), *itertools.chain(*given), *self.overrides]

    def is_finished(self) -> bool:
        """Whether the folder contains results of all tasks of a run with this config."""
        saved = self.folder / "config.yaml"
        if not (self.folder / "results.json").exists() or not saved.exists():
            return False
        results = read_results(self.folder)
        changed = changed_keys(self.cfg, read_text(saved, errors="replace"), saved)
        return len(results["mAP"]) == len(results["tasks"]) and not changed


def plan_runs(
    out: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    files: Sequence[Path] = (),
    benchmarks: Sequence[Path] = (),
    vary: Mapping[str, Sequence[str]] = MappingProxyType({}),
    overrides: Sequence[str] = (),
) -> list[PlannedRun]:
    """Plan the runs of a sweep; all runs of the first seed come first.

    Args:
        out: folder of the run folders, which have names ``METHOD-seedN``, or ``METHOD-KEY=VALUE-seedN`` if keys vary.
            With several benchmarks, each has a subfolder with the name of its file.
        methods, seeds: names of the methods, and seeds.
        files, benchmarks: config files that all runs use, and benchmark files; each run uses one benchmark file.
        vary: values by key, of which all combinations are trained. Keys that are joined by commas vary together, as in
            ``{"METHOD.ALPHA,METHOD.BETA": ["0,1", "1,0"]}``.
        overrides: ``KEY VALUE`` pairs for all runs.
    """
    groups = [keys.split(",") for keys in vary]
    keys_of_config = [key for key, _ in leaves(load_config(files, overrides))]  # also refuses a key without a value
    for key in [*itertools.chain(*groups), *overrides[::2]]:
        if key in OWN_OPTION:
            raise InputError(f"{key}: set it with {OWN_OPTION[key]}")
    choices = [[_pairs(group, value) for value in values] for group, values in zip(groups, vary.values(), strict=True)]
    runs = []
    each_benchmark: Sequence[Path | None] = benchmarks or [None]
    for seed, benchmark, method, chosen in itertools.product(
        seeds, each_benchmark, methods, itertools.product(*choices)
    ):
        pairs = list(itertools.chain(*chosen))
        words = [method, *(f"{short_key(key, keys_of_config)}={value}" for key, value in pairs), f"seed{seed}"]
        name = re.sub(r"[^\w.=+-]+", "_", "-".join(words))  # values may be lists or paths
        runs.append(
            PlannedRun(
                out / (benchmark.stem if benchmark and len(benchmarks) > 1 else "") / name,
                (*files, *([benchmark] if benchmark else [])) or (DEFAULT_CONFIG,),
                ("METHOD.NAME", method, *overrides, *itertools.chain(*pairs), "SEED", str(seed)),
            )
        )
    for folder, count in Counter(run.folder for run in runs).items():
        if count > 1:
            raise InputError(f"{folder}: would contain {count} runs; give every method, seed, file and value only once")
    _require_different(runs)
    return runs


def _require_different(runs: Sequence[PlannedRun]) -> None:
    """Build every method once, to check its options, and require that no two runs are the same."""
    same: dict[str, Path] = {}
    for run in runs:
        cfg = run.cfg
        check_values(cfg)
        computed = f"{cfg.SEED} {sorted(recorded_config(dict(leaves(cfg))).items())}"
        if (first := same.setdefault(computed, run.folder)) != run.folder:
            raise InputError(f"{run.folder}: would be the same run as {first}; give every value only once")
        small_method(cfg)


def small_method(cfg: Config) -> Method:
    """Build the method of a config with a small network, which checks the options of the method."""
    small = Embedder("small", height=32, width=16, neck=method_class(cfg.METHOD.NAME).neck)
    with naming_keys("METHOD", name="METHOD.NAME"):
        return build_method(cfg.METHOD.NAME, small, **method_options(cfg))


def sweep(runs: Sequence[PlannedRun], out: Path, *, jobs: int = 1, key: str = "") -> tuple[str, dict[str, str]]:
    """Train runs, each in its own process, and compare them; finished runs are not trained again.

    A run that fails does not stop the other runs.

    Args:
        runs: runs from :func:`plan_runs`.
        out: folder in which ``table.md``, ``table.csv``, ``table.tex`` and ``curves.png`` of the finished runs are
            written.
        jobs: number of runs at the same time. Simultaneous runs share the CPU cores, unless ``OMP_NUM_THREADS`` is set.
            Each run uses one GPU.
        key: key with different values in the runs; if they are numbers, ``sensitivity.png`` is written too.

    Returns:
        The table as text, and a dictionary from the folder of each failed run to the reason in one line.
    """
    failed: dict[str, str] = {}
    gpus = visible_gpus() if jobs > 1 else []
    places: SimpleQueue[str] = SimpleQueue()  # per simultaneous run, the name of a GPU or ""
    for number in range(jobs):
        places.put(gpus[number % len(gpus)] if gpus else "")
    stopping = threading.Event()
    # Nothing is written to the pipe. The runs end when this process closes it, or when the process itself ends.
    read_end, write_end = os.pipe()
    with StopSignals(), open(read_end), open(write_end, "w") as leash, ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_make, run, jobs, read_end, places, stopping): run for run in runs}
        try:
            for number, done in enumerate(as_completed(waiting), start=1):
                run, reason = waiting[done], done.result()
                logger.info("%d/%d %s: %s", number, len(runs), run.folder, reason or "done")
                if reason:
                    failed[str(run.folder)] = reason
        except BaseException as end:  # stop the running runs, and start no more
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(end, Stopped) and end.signal != signal.SIGINT:  # the terminal itself sends Ctrl-C to the runs
                leash.close()
            raise
    finished = [read_results(run.folder) for run in runs if str(run.folder) not in failed]
    if not finished:
        return "no run is finished", failed
    forms: dict[str, Literal["markdown", "csv", "latex"]] = {"md": "markdown", "csv": "csv", "tex": "latex"}
    for suffix, form in forms.items():
        mark = "\n<!-- generator: lreid -->\n" * (suffix == "md")
        write_text(out / f"table.{suffix}", comparison_table(finished, form).rstrip("\n") + "\n" + mark)
    save_figure(learning_curve(finished), out / "curves.png")
    if all(type(run.get("config", {}).get(key)) in (int, float) for run in finished):
        save_figure(sensitivity_curve(finished, key), out / "sensitivity.png")
    return comparison_table(finished), failed


def _pairs(keys: Sequence[str], value: str) -> list[tuple[str, str]]:
    """Return pairs of key and value. A value for several keys is split at commas."""
    values = value.split(",") if len(keys) > 1 else [value]
    if len(values) != len(keys):
        raise InputError(
            f"--vary {','.join(keys)}: {value} does not contain {len(keys)} values with commas between them"
        )
    return list(zip(keys, values, strict=True))


def visible_gpus() -> list[str]:
    """Return the names of the visible GPUs, as for ``CUDA_VISIBLE_DEVICES``, without initialising CUDA."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [each.strip() for each in named.split(",")][:count] if named else [str(gpu) for gpu in range(count)]


def _make(run: PlannedRun, jobs: int, leash: int, places: SimpleQueue[str], stopping: threading.Event) -> str:
    """Train a run in a separate process, and return the error in one line, or "" if there is none."""
    # A killed sweep leaves runs that are just ending, so the next sweep waits for their folders.
    if is_busy(run.folder):
        logger.info("%s: another process is using this folder; waiting for its end", run.folder)
    while is_busy(run.folder):
        if stopping.wait(1.0):
            return "stopped"
    try:
        if run.is_finished():
            return ""
    except InputError as error:
        return str(error)
    place = places.get()
    try:
        return _in_a_process(run, jobs, leash, place)
    finally:
        places.put(place)


def _in_a_process(run: PlannedRun, jobs: int, leash: int, gpu: str) -> str:
    # The run must import the same lreid as this process, whatever the working directory is.
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONSAFEPATH="1") | {LEASH: "1"}
    if gpu and run.cfg.DEVICE in ("auto", "cuda"):
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    if jobs > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    process = subprocess.run(
        run.command,
        env=environment,
        text=True,
        stdin=leash,
        stderr=subprocess.PIPE,
        stdout=None if jobs == 1 else subprocess.DEVNULL,  # each run also writes a log.txt
    )
    if process.returncode == 0:
        return ""
    if process.returncode < 0:
        killer = signal.Signals(-process.returncode)
        hint = " (if the system ran out of memory, lower --jobs)" if killer is signal.SIGKILL else ""
        return f"killed by {killer.name}{hint}"
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    return lines[-1].removeprefix("lreid train: ")
