"""All methods on a simulated CUDA device: nothing on a wrong one, the figures of the CPU, and few waits of the host."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE
from tiny import NETWORKS

from lreid.methods import method_names

CUDA = Path(__file__).resolve().parents[1] / "cuda"
sys.path.append(str(CUDA))
import simulated  # noqa: E402

# How often the host waits for the device in a step, at most, for logits or scores that the memory keeps; else 0.
WAITS = dict.fromkeys(("der", "der_pp", "fdr", "gem", "gss", "mir"), 1) | {"contrast_scoring": 2}


@pytest.fixture
def on_cuda(tmp_path: Path) -> Callable[..., str]:
    """Runs scripts of ``tests/cuda`` in one process, as a start takes seconds, and gives what they print."""
    try:
        environment = simulated.environment(tmp_path)
    except LookupError as missing:
        pytest.skip(f"no simulated device: {missing}")

    def run(scripts: list[str], *arguments: str) -> str:
        program = f"import runpy; [runpy.run_path(each, run_name='__main__') for each in {scripts}]"
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=CUDA, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.mark.slow
def test_everything_that_runs_on_a_simulated_cuda_device(on_cuda: Callable[..., str], tmp_path: Path) -> None:
    scripts = ["rules.py", "index.py", "options.py", "methods.py"]
    transformers = {name for name, keys in NETWORKS.items() if "MODEL.BACKBONE" in keys}  # the device has no attention
    for line in on_cuda(scripts, str(tmp_path), *sorted(set(method_names()) - transformers)).splitlines():
        found: dict[str, Any] = json.loads(line)
        name = found["method"]
        assert found["different"] == [], name
        assert found["waits"].keys() == {"0", "1"} and min(len(steps) for steps in found["waits"].values()) >= 4, name
        for task, steps in found["waits"].items():
            for waits in steps:
                assert sum(waits.values()) <= WAITS.get(name, 0), f"{name}, task {task}: {waits}"
