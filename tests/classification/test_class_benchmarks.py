"""The benchmarks of class-incremental learning from end to end, on tiny archives in the layout of the real ones."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from class_archives import (
    Images,
    squares,
    write_cifar10,
    write_cifar100,
    write_mini_imagenet,
    write_mnist,
    write_svhn,
    write_tiny_imagenet,
)
from PIL import Image
from tiny import FEW, as_arguments

from lreid.build import method_of, resolved
from lreid.config import check_values, leaves, load_config
from lreid.data.records import Record, Task
from lreid.training.run import batching_of, train
from lreid.training.updates import Schedule


def write_folder(home: Path, images: Images) -> Path:
    """A folder of classes."""
    for split, (pixels, labels) in images.items():
        for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            file = home / split / f"class{label}" / f"{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return home


Writer = Callable[[Path, Images], Path]
BENCHMARKS: dict[str, tuple[int, Writer, str]] = {  # tasks, writer of its archive, folder of that
    "seq-cifar10": (5, write_cifar10, "cifar10/cifar-10-batches-py"),
    "seq-cifar100": (5, write_cifar100, "cifar100/cifar-100-python"),
    "seq-tiny-imagenet": (10, write_tiny_imagenet, "tiny-imagenet-200"),
    "split-cifar10-online": (5, write_cifar10, "cifar-10-batches-py"),
    "split-cifar100-online": (20, write_cifar100, "cifar-100-python"),
    "split-mini-imagenet-online": (20, write_mini_imagenet, "mini-imagenet"),
    "rotated-mnist": (20, write_mnist, "mnist"),
    "contrast-cifar10": (1, write_cifar10, "cifar-10-batches-py"),
    "contrast-cifar100": (1, write_cifar100, "cifar-100-python"),
    "contrast-svhn": (1, write_svhn, "svhn"),
    "contrast-imagenet100": (1, write_folder, "imagenet100"),
}
# One of those that differ in the data set alone; CIFAR-100 is read in datasets/test_class_readers.py.
TRAINED = sorted({*BENCHMARKS} - {"seq-cifar100", "split-cifar100-online", "contrast-cifar10", "contrast-cifar100"})
KEYS = ["TRAIN.EPOCHS", "1", "TRAIN.FIRST_EPOCHS", "1", "TRAIN.WARMUP_EPOCHS", "0", "EVAL.PROBE_EPOCHS", "3"]
SMALL_NETWORK = as_arguments(FEW)  # in place of the two large kinds of ResNet-18
SMALLER = {"contrast-imagenet100": ["INPUT.HEIGHT", "64", "INPUT.WIDTH", "64"]}


def trained(name: str, root: Path) -> dict[str, dict[str, list[list[float]]]]:
    """The accuracies of a short run on tiny data with at most two tasks."""
    _, write, folder = BENCHMARKS[name]
    write(root / folder, squares(4, train=12 if "mini" in name else 5, test=2, size=28 if "mnist" in name else 32))
    keys = ["DATA.ROOT", str(root), *KEYS, *SMALLER.get(name, [])]
    if name == "rotated-mnist":
        keys += ["BENCHMARK.TRAIN", "['rotated:0:mnist', 'rotated:90:mnist']"]
    else:
        keys += ["BENCHMARK.TASKS_PER_DATASET", str(tasks_of(name))]
    if name not in ("rotated-mnist", "split-cifar10-online"):
        keys += SMALL_NETWORK
    return train(load_config([f"benchmarks/{name}"], keys), root / "run")["accuracy"]


def tasks_of(name: str) -> int:
    return min(BENCHMARKS[name][0], 2)


@pytest.mark.slow
@pytest.mark.usefixtures("any_checksum")
@pytest.mark.parametrize("name", TRAINED)
def test_a_benchmark_trains_and_classifies(name: str, tmp_path: Path) -> None:
    matrices = trained(name, tmp_path)
    assert {"linear", "knn", "nearest_mean"} <= set(matrices)
    rows = list(range(1, tasks_of(name) + 1))
    assert all([len(row) for row in kinds["class"]] == rows for kinds in matrices.values())
    assert ("classifier" in matrices) == ("online" in name)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_file_names_itself_and_its_values_are_allowed(name: str) -> None:
    cfg = load_config([f"benchmarks/{name}"])
    check_values(cfg)
    assert name == cfg.BENCHMARK.NAME
    assert len(cfg.BENCHMARK.TRAIN) * cfg.BENCHMARK.TASKS_PER_DATASET == BENCHMARKS[name][0]
    assert cfg.EVAL.ACCURACY and cfg.STREAM.SEGMENT
    assert (cfg.INPUT.PIPELINE == []) == ("online" in name)


SGD = {"TRAIN.OPTIMIZER": "sgd", "TRAIN.MOMENTUM": 0.9, "TRAIN.WEIGHT_DECAY": 1e-4, "TRAIN.SCHEDULE": "cosine"}
SGD |= {"TRAIN.WARMUP_EPOCHS": 10, "STREAM.SEGMENT": 512, "METHOD.EXEMPLARS": 500, "EVAL.PROBE_EPOCHS": 100}
SGD |= {"EVAL.PROBE_INPUT": "augmented"}
ONLINE = {"TRAIN.OPTIMIZER": "sgd", "TRAIN.MOMENTUM": 0.0, "TRAIN.WEIGHT_DECAY": 0.0, "TRAIN.LR": 0.1}
ONLINE |= {"TRAIN.EPOCHS": 1, "STREAM.SEGMENT": 10, "STREAM.ITERATIONS": 1, "INPUT.PIPELINE": []}
ONLINE |= {"MODEL.BACKBONE": "resnet18_reduced"}
STREAM = {"TRAIN.OPTIMIZER": "adam", "TRAIN.WEIGHT_DECAY": 1e-4, "TRAIN.END_FACTOR": 1.0, "STREAM.SEGMENT": 256}
STREAM |= {"INPUT.PIPELINE": ["configs/augmentations/simclr-resized.yaml"]}
STREAM |= {"EVAL.PROBE_OPTIMIZER": "adam", "EVAL.PROBE_LR": 3e-4, "EVAL.PROBE_EPOCHS": 500}
PUBLISHED = {  # Co²L, Tables 4 and 5, A.4; CCLIS, Table 5; ER-ACE, Appendix A; Contrast Scoring, A.1
    "seq-cifar10": SGD | {"TRAIN.FIRST_EPOCHS": 500, "TRAIN.EPOCHS": 100, "TRAIN.LR": 0.5, "METHOD.TEMPERATURE": 0.5}
    | {"METHOD.DISTILLATION_TEMPERATURE": 0.2, "METHOD.TEACHER_TEMPERATURE": 0.01, "EVAL.PROBE_LR": 1.0}
    | {"INPUT.MEAN": [0.4914, 0.4822, 0.4465], "INPUT.STD": [0.2023, 0.1994, 0.2010]},
    "seq-cifar100": SGD | {"INPUT.MEAN": [0.5153, 0.4961, 0.4497], "INPUT.STD": [0.2608, 0.2551, 0.2779]}
    | {"TRAIN.FIRST_EPOCHS": 500, "TRAIN.EPOCHS": 100, "TRAIN.LR": 0.5, "EVAL.PROBE_LR": 0.1},
    "seq-tiny-imagenet": SGD | {"INPUT.MEAN": [0.4802, 0.4480, 0.3975], "INPUT.STD": [0.2770, 0.2691, 0.2821]}
    | {"TRAIN.FIRST_EPOCHS": 500, "TRAIN.EPOCHS": 50, "TRAIN.LR": 0.1, "EVAL.PROBE_LR": 0.1}
    | {"METHOD.DISTILLATION_TEMPERATURE": 0.1, "METHOD.TEACHER_TEMPERATURE": 0.1, "METHOD.TEMPERATURE": 0.5},
    "rotated-mnist": SGD | {"TRAIN.FIRST_EPOCHS": 100, "TRAIN.EPOCHS": 20, "TRAIN.LR": 0.01, "EVAL.PROBE_LR": 1.0}
    | {"METHOD.TEMPERATURE": 0.1, "METHOD.DISTILLATION_TEMPERATURE": 0.2, "METHOD.TEACHER_TEMPERATURE": 0.01}
    | {"METHOD.PROJECTION": 500, "INPUT.MEAN": [0.0, 0.0, 0.0], "INPUT.STD": [1.0, 1.0, 1.0]},
    "split-cifar10-online": ONLINE | {"METHOD.EXEMPLARS": 200, "INPUT.HEIGHT": 32},
    "split-cifar100-online": ONLINE | {"METHOD.EXEMPLARS": 10000, "INPUT.HEIGHT": 32},
    "split-mini-imagenet-online": ONLINE | {"METHOD.EXEMPLARS": 10000, "INPUT.HEIGHT": 84},
    "contrast-cifar10": STREAM | {"TRAIN.LR": 1e-4, "TRAIN.EPOCHS": 500, "STREAM.CORRELATION": 500}
    | {"METHOD.TEMPERATURE": 0.5, "MODEL.BACKBONE": "resnet18_cifar"},
    "contrast-imagenet100": STREAM | {"TRAIN.LR": 4e-4, "TRAIN.EPOCHS": 100, "STREAM.CORRELATION": 100}
    | {"METHOD.TEMPERATURE": 0.07, "MODEL.BACKBONE": "resnet18_plain"},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_figures(name: str) -> None:
    keys = dict(leaves(resolved(load_config([f"benchmarks/{name}"]))))
    assert {key: keys[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_replay_of_the_online_table_excludes_images_of_the_current_task(repository: Path) -> None:
    """ER-ACE, Section 4.2; ER-ACE and ER-AML themselves are task-free."""
    page = (repository / "docs/explanation/papers.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^lreid sweep --config (split-\w+-online) --methods ([\w ]+?) --.* (METHOD.EXEMPLARS .*)$", page, re.M
    )
    rows = {}
    for benchmark, names, keys in lines:
        for name in names.split():
            cfg = resolved(load_config([f"benchmarks/{benchmark}", f"methods/{name}"], keys.split()))
            rows.setdefault(name, set()).add(cfg.METHOD.get("TASK_FREE"))
    free = {"er_ace": {True}, "er_aml": {True}, "gdumb": {True}}
    assert rows == {key: {False} for key in ("er", "mir", "icarl_online", "gem")} | free


def test_er_learns_digits_in_one_pass_at_one_rate() -> None:
    """Co2L's row of R-MNIST; the benchmark's first task has 100 epochs and a warm-up."""
    cfg = load_config(["benchmarks/rotated-mnist", "methods/er", "recipes/online"])
    schedule, epochs = Schedule(cfg.TRAIN), [cfg.TRAIN.FIRST_EPOCHS or cfg.TRAIN.EPOCHS, *[cfg.TRAIN.EPOCHS] * 19]
    assert epochs == [1] * 20 and {schedule.rate(task, 0, epochs) for task in range(20)} == {0.1}
    assert dict(leaves(cfg)).items() >= {"TRAIN.MOMENTUM": 0.0, "TRAIN.OPTIMIZER": "sgd", "STREAM.SEGMENT": 10}.items()


def test_cclis_has_its_own_rates() -> None:
    cfg = load_config(["benchmarks/seq-cifar10", "recipes/cclis"])
    assert (cfg.METHOD.NAME, cfg.TRAIN.LR, cfg.EVAL.PROBE_LR, cfg.TRAIN.FIRST_EPOCHS) == ("cclis", 1.0, 0.5, 500)


@pytest.mark.parametrize("stored", [0, 200, 500, 40000])
@pytest.mark.parametrize("name", ["cclis", "co2l"])
def test_batches_contain_512_images_with_those_of_the_memory(name: str, stored: int) -> None:
    """CCLIS draws "in equal proportions from both the replay buffer and the current task"; Co2L from their union."""
    cfg = load_config(["benchmarks/seq-cifar10", *["recipes/cclis"] * (name == "cclis")])
    device = torch.device("cpu")
    method = method_of(cfg, device, pretrained=False)
    task = Task(1, "cifar10 2/5", tuple(Record("", pid, 0) for pid in [2, 3] * 5000))
    batches = batching_of(cfg, device).sampler(method, task, task.records, [0, 1] * (stored // 2)).epoch(0)
    counts = np.bincount(np.concatenate(batches), minlength=10000 + stored)
    assert all(490 < len(batch) <= 512 for batch in batches) and (counts[:10000] == 1).all()
    if name == "co2l":
        assert (counts == 1).all()
    elif stored:
        assert all((batch < 10000).sum() == (batch >= 10000).sum() for batch in batches)
