"""Runs with every method and option that are killed at random moments and resumed until they end."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import clips
from coloured import write_squares
from commands import KEYS, Counts, leftovers_in, names_in, outcome
from processes import fork_process, fork_ranks, wait_for_exit
from tiny import NETWORKS, TINY, as_arguments

import lreid.classification  # noqa: F401, registers the scheme folder:
from lreid.config import CONFIGS, load_config
from lreid.config_keys import Config
from lreid.errors import InputError, Stopped
from lreid.training.run import train

# Besides every method with its defaults: method, options and number of processes.
VARIANTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "dask": ("dask", {"METHOD.STYLE_BATCH": 4}, 1),
    "drift": ("er_ace", {"EVAL.DRIFT_STEPS": 2}, 1),
    "drift of dwopp": ("dwopp", {"EVAL.DRIFT_STEPS": 2}, 1),
    "accuracy": ("lwf", {"EVAL.ACCURACY": True, "INPUT.WIDTH": 32}, 1),
    "accuracy and drift": ("er", {"EVAL.ACCURACY": True, "EVAL.DRIFT_STEPS": 2, "INPUT.WIDTH": 32}, 1),
    "workers": ("dwopp", {"DATA.WORKERS": 1, "MODEL.BACKBONE": "small"}, 1),
    "accumulate": ("dwopp", {"TRAIN.ACCUMULATE": 2}, 1),
    "stream": ("er", {"STREAM.SEGMENT": 4, "STREAM.ITERATIONS": 2, "TRAIN.OPTIMIZER": "sgd"}, 1),
    "paths": ("lwf_plus", {"METHOD.STORE": "paths", "METHOD.EXEMPLARS": 6}, 1),
    "two processes": ("dwopp", {}, 2),
    "two processes with exemplars": ("bot_ft_plus", {"METHOD.EXEMPLARS": 6}, 2),
}
HANGS = 1800.0  # seconds after which a run hangs, even on a busy machine


def titles() -> list[str]:
    """Titles of all runs: every method, and the variants."""
    methods = sorted(file.stem for file in (CONFIGS / "methods").glob("*.yaml"))
    return list(dict.fromkeys([*methods, *VARIANTS]))


def chain(title: str, folder: Path, kills: int, seed: int = 0) -> Counts:
    """Train once without interruption and once with ``kills`` attempts to kill the run; compare both."""
    count = VARIANTS[title][2] if title in VARIANTS else 1
    folder.mkdir(parents=True, exist_ok=True)
    cfg, rng, counts = config_of(title, folder), random.Random(f"{title} {seed}"), Counts()
    begun = time.monotonic()
    if _ended(_start(cfg, folder / "uninterrupted", count)) != [0] * count:
        raise RuntimeError(f"{title}: does not train")
    lasted = time.monotonic() - begun
    out = folder / "run-0"
    for attempt in range(min(kills, 6) if cfg.DATA.WORKERS else kills):
        pids = _start(cfg, out, count)
        time.sleep(rng.uniform(0.0, 0.8 * lasted))
        stop = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)[attempt % 4]
        for pid in pids if stop != signal.SIGKILL or attempt % 3 else rng.sample(pids, 1):
            os.kill(pid, stop)
        statuses = _ended(pids)
        counts.numbers["kills"] += -signal.SIGKILL in statuses
        counts.numbers["stops"] += 128 + stop in statuses
        if 1 in statuses:
            counts.wrong("tracebacks", title)
        if 2 in statuses and count == 1:  # of several processes, those whose partner was killed end with 2
            counts.wrong("damaged", f"{title}: a run could not be resumed after attempt {attempt}")
        if statuses == [0] * count:  # the end came first
            _compare(title, out, folder / "uninterrupted", counts)
            out = folder / f"run-{attempt + 1}"
    if _ended(_start(cfg, out, count)) != [0] * count:
        counts.wrong("lost", f"{title}: the run does not end")
    else:
        _compare(title, out, folder / "uninterrupted", counts)
    return counts


def _compare(title: str, out: Path, uninterrupted: Path, counts: Counts) -> None:
    """Compare a finished run with the uninterrupted one."""
    counts.numbers["runs"] += 1
    if outcome(out) != outcome(uninterrupted):
        counts.wrong("resumes not bit-equal", title)
    if strange := leftovers_in(out) | (names_in(out) ^ names_in(uninterrupted)):
        counts.wrong("leftovers", f"{title}: {sorted(strange)}")


def config_of(title: str, folder: Path) -> Config:
    """Config of a run of one second that saves after every step."""
    method, keys, _ = VARIANTS.get(title, (title, {}, 1))
    clips.register()
    pairs = TINY | KEYS | NETWORKS.get(method, {}) | {"TRAIN.CHECKPOINT_STEPS": 1, "TRAIN.EPOCHS": 2} | keys
    if "EVAL.ACCURACY" in keys:
        pairs["BENCHMARK.TRAIN"] = [f"folder:{write_squares(folder / 'classes')}"]
    return load_config([CONFIGS / "methods" / f"{method}.yaml"], as_arguments(pairs))


def _start(cfg: Config, out: Path, count: int) -> list[int]:
    """Start the processes of a run; each ends with the exit status of the command."""

    def work() -> int:
        try:
            train(cfg, out, resume=True)
        except InputError as error:
            print(f"{out.name}: {error}", flush=True)
            return 2
        except Stopped as stopped:
            return stopped.status
        except Exception:
            traceback.print_exc()
            return 1
        return 0

    if cfg.DATA.WORKERS:  # loader processes are forked by a process that was started, not forked itself
        command = [sys.executable, "-m", "lreid", "train", "--resume", "--out", str(out), "--config"]
        saved = out.with_name("workers.yaml")
        saved.write_text(cfg.dump())
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return [subprocess.Popen([*command, str(saved)], env=environment, **quiet).pid]
    return [fork_process(work)] if count == 1 else fork_ranks(count, work)


def _ended(pids: list[int]) -> list[int]:
    return [wait_for_exit(pid, HANGS) for pid in pids]
