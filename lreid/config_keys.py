"""The keys of the configuration: one table of defaults, types, meanings and limits, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Key:
    """A key of the config: its default, whose type its values have, what it means, and which values it may have.

    Args:
        default: value where nothing sets it.
        about: its meaning, for the reader.
        least, most: inclusive limits of a number.
        above: exclusive lower limit of a number.
        choices: the only values of a text, or of the texts in a list.
        check: returns what the value must be, "" where it is that.
        paths: values that begin with one of these go on with a path, which a file may give relative to itself.
        free: it may change when a run is taken up again: where and how often a run works, not what it computes.
    """

    default: Any
    about: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str] | None = None
    paths: tuple[str, ...] = ()
    free: bool = False

    def fault(self, value: Any) -> str:
        """What a value of the right type must be; "" where it is that."""
        if self.least is not None and value < self.least:
            return f"it must be {self.least} or more"
        if self.above is not None and value <= self.above:
            return f"it must be above {self.above}"
        if self.most is not None and value > self.most:
            return f"it must be {self.most} or less"
        values = value if isinstance(value, list) else [value]
        if self.choices and any(each not in self.choices for each in values):
            return f"it must be {' or '.join(self.choices)}"
        return self.check(value) if self.check else ""


def _three_numbers(value: list[Any]) -> str:
    fits = len(value) == 3 and all(type(number) in (int, float) and abs(number) <= 255 for number in value)
    return "" if fits else "it must be three numbers, one for each of red, green and blue"


def _three_above_zero(value: list[Any]) -> str:
    return _three_numbers(value) or ("" if min(value) > 0 else "they must be above 0")


def _epoch_numbers(value: list[Any]) -> str:
    fits = all(type(number) is int and number >= 1 for number in value)
    return "" if fits else "it must be a list of epochs, 1 or later, such as [40, 70]"


def _data_sets(value: list[Any]) -> str:
    fits = all(type(name) is str for name in value)
    return "" if fits else "it must be a list of data sets, such as ['market1501']"


def _folder_name(value: str) -> str:
    fits = value not in (".", "..") and "/" not in value and value.isprintable()
    return "" if fits else "it names the run's folder, so it must be a name, not a path"


GROUPS = {
    "BENCHMARK": "What is learned, in which order, and what is tested.",
    "DATA": "Where images come from, and how they are kept and loaded.",
    "SYNTHETIC": "Size of the synthetic data sets, `synthetic:DOMAIN`.",
    "INPUT": "What the network is given.",
    "EPISODE": "Batches of the methods that learn from episodes of support and query images.",
    "BATCH": "P x K batches, of all other methods.",
    "STREAM": "A single pass over each task in place of epochs of batches.",
    "MODEL": "The network.",
    "METHOD": "The lifelong method. All further keys are its options.",
    "TRAIN": "The training of a task.",
    "EVAL": "The evaluation after every task.",
}

_SEED: dict[str, Any] = {"least": 0, "most": 2**32 - 1}
_SOURCES: dict[str, Any] = {"check": _data_sets, "paths": ("csv:", "folder:", "own:")}
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")

KEYS = {
    "SEED": Key(0, "one seed for all random generators", **_SEED),
    "DEVICE": Key("auto", "auto, cpu, cuda, cuda:1 …; auto is the first GPU where there is one", free=True),
    "BENCHMARK.NAME": Key("synthetic-10", "shown in tables", check=_folder_name),
    "BENCHMARK.TRAIN": Key(["synthetic:plaza"], "data sets in the order they are learned", **_SOURCES),
    "BENCHMARK.UNSEEN": Key([], "data sets that are only tested on", **_SOURCES),
    "BENCHMARK.LEARNED": Key([], "those learned before this run (lreid train --from): tested on again", **_SOURCES),
    "BENCHMARK.LEARNED_IDENTITIES": Key(0, "identities learned before this run; they are its first task", least=0),
    "BENCHMARK.TASKS_PER_DATASET": Key(10, "tasks that the identities of each set are cut into", least=1),
    "BENCHMARK.POOL": Key(False, "merge the sets of TRAIN into one before cutting"),
    "BENCHMARK.IDENTITIES": Key(0, "at most so many training identities a set, 0 = all", least=0),
    "BENCHMARK.SCENARIO": Key(
        "class-incremental",
        "every task has identities of its own; domain-incremental: each set is a task, with the same classes",
        choices=("class-incremental", "domain-incremental"),
    ),
    "BENCHMARK.JOINT": Key(False, "learn all tasks at once, as an upper bound"),
    "BENCHMARK.ORDER": Key("ascending", "order of identities", choices=("ascending", "random")),
    "BENCHMARK.ORDER_SEED": Key(0, "seed of the random order", **_SEED),
    "BENCHMARK.UNSEEN_GALLERIES": Key(
        "separate", "unseen sets apart, merged into one (as AKA does), or both", choices=("separate", "merged", "both")
    ),
    "BENCHMARK.SPLITS": Key(1, "of unseen sets with 10 or 20 random splits average over so many, 0 = all", least=0),
    "BENCHMARK.SPLIT_SEED": Key(0, "seed of the random splits", **_SEED),
    "BENCHMARK.CAMERAS": Key(
        "apart", "of sets without cameras: apart (query 0, gallery 1) or same (both 0)", choices=("apart", "same")
    ),
    "DATA.ROOT": Key("datasets", "folder that holds the data sets", free=True),
    "DATA.CACHE_GIB": Key(4.0, "decoded images of a task are kept in memory up to this size, GiB", least=0, free=True),
    "DATA.CACHE_DIR": Key("", "folder on disk for those that do not fit; empty: decode them in every epoch", free=True),
    "DATA.CACHE_DIR_GIB": Key(50.0, "size up to which it is filled, GiB", least=0, free=True),
    "DATA.SKIP_BAD_IMAGES": Key(False, "leave out images that cannot be read instead of stopping"),
    "DATA.WORKERS": Key(0, "loader processes; 0 is fastest while the images fit in the cache", least=0, free=True),
    "DATA.AUGMENT_ON": Key(
        "auto",
        "what flips, normalises and erases: cpu, or the device, which is then sent uint8; auto: a GPU does",
        choices=("auto", "cpu", "device"),
        free=True,
    ),
    "SYNTHETIC.TRAIN_IDENTITIES": Key(480, "identities to train on", least=0),
    "SYNTHETIC.TEST_IDENTITIES": Key(150, "identities to search for", least=0),
    "SYNTHETIC.IMAGES_PER_IDENTITY": Key(10, "images of each, under several cameras", least=3),
    "SYNTHETIC.DISTRACTORS": Key(300, "gallery images of identities without a query", least=0),
    "SYNTHETIC.SEED": Key(0, "another seed makes another population"),
    "INPUT.HEIGHT": Key(64, "pixels", least=1, most=4096),
    "INPUT.WIDTH": Key(32, "pixels", least=1, most=4096),
    "INPUT.MEAN": Key([0.485, 0.456, 0.406], "of RGB in [0, 1]; trained weights may set it", check=_three_numbers),
    "INPUT.STD": Key([0.229, 0.224, 0.225], "of RGB in [0, 1]; trained weights may set it", check=_three_above_zero),
    "INPUT.FLIP": Key(0.5, "probability of a horizontal flip", least=0, most=1),
    "INPUT.ERASING": Key(False, "random erasing; by itself that of DMML, growing over a task's epochs"),
    "INPUT.ERASING_PROBABILITY": Key(
        0.0, "above 0, erasing is that of BoT: so often, 2 to 40 % of an image, filled with INPUT.MEAN", least=0, most=1
    ),
    "INPUT.PAD": Key(0, "black pixels on every side, of which a random crop is taken", least=0, most=4096),
    "INPUT.PIPELINE": Key("", "file of an albumentations pipeline that comes before flip and erasing", paths=("",)),
    "EPISODE.IDENTITIES": Key(24, "identities an episode", least=1),
    "EPISODE.SUPPORT": Key(4, "support images an identity", least=1),
    "EPISODE.QUERY": Key(1, "query images an identity", least=1),
    "BATCH.IDENTITIES": Key(24, "identities a batch", least=1),
    "BATCH.IMAGES": Key(5, "images an identity", least=1),
    "BATCH.OTHER_CAMERAS": Key(False, "an identity's images are one and others by other cameras (LSTKC)"),
    "BATCH.NEIGHBOURS": Key(1, "with these: identities come in groups of so many that the same cameras saw", least=1),
    "STREAM.SEGMENT": Key(0, "images a step; 0 = batches (a method that needs a stream: P x K images)", least=0),
    "STREAM.CORRELATION": Key(1, "images of an identity in a row", least=1),
    "STREAM.ITERATIONS": Key(1, "steps on every segment", least=1),
    "MODEL.BACKBONE": Key(
        "small",
        "small, resnet18/34/50/101, resnet50_layer3, resnet18_plain/_cifar/_reduced, digits, mobilenet_v2, "
        "torchreid:NAME, timm:NAME",
    ),
    "MODEL.WEIGHTS": Key("none", "none, imagenet, hub (of timm), zoo:NAME, package:NAME, or a file", paths=("",)),
    "MODEL.POOLING": Key(
        "avg",
        "of the last map: mean, or generalised mean (GeM, p = 3); of a transformer, in place of its own: class token, "
        "or mean of its patches",
        choices=("avg", "gem", "class", "patches"),
    ),
    "MODEL.NORM": Key(
        "batch",
        "of the backbone: BatchNorm, or instance norms as in IBN-Net, in the stem, of the input image; +grey balances "
        "the white of images",
        choices=tuple(
            norm + entry
            for norm in ("batch", "batch+stem", "ibn_a", "ibn_a+stem", "ibn_b")
            for entry in ("", "+input", "+grey")
        ),
    ),
    "MODEL.SCALE": Key(1.0, "features are multiplied by it; below 1 where those of the start are long", above=0),
    "METHOD.NAME": Key("dwopp", "a file of lreid/methods or configs/methods, or a registered name"),
    "METHOD.ALIAS": Key("", "its name in results and tables where its options make another method of it"),
    "METHOD.RECIPE": Key("dmml", "file of configs/recipes that benchmarks of real images train it by"),
    "TRAIN.EPOCHS": Key(30, "of a task", least=1),
    "TRAIN.FIRST_EPOCHS": Key(0, "of the first task; 0 = as many as of the others", least=0),
    "TRAIN.EPOCH_OF": Key(
        "identities",
        "a look at every identity (DMML), or at about every image (BoT); in a stream always at every image",
        choices=("identities", "images"),
    ),
    "TRAIN.EPOCH_STEPS": Key(0, "batches an epoch, whatever the size of the task (AKA: 150); 0 = one look", least=0),
    "TRAIN.OPTIMIZER": Key("adam", "of all parameters, anew for every task", choices=("adam", "sgd")),
    "TRAIN.MOMENTUM": Key(0.0, "of sgd", least=0, most=1),
    "TRAIN.LR": Key(1e-3, "learning rate from random weights; from those of ImageNet 2e-4", above=0),
    "TRAIN.FROZEN_LAYERS": Key(0, "of the backbone, from the images on, that stay as they begin", least=0),
    "TRAIN.LAYER_DECAY": Key(
        1.0, "rate of a layer of the backbone, relative to that of the next one; the last one's to LR", above=0, most=1
    ),
    "TRAIN.BIAS_RATE": Key(1.0, "rate of the biases of the network, relative to that of their layer", above=0),
    "TRAIN.WEIGHT_DECAY": Key(1e-4, "L2, coupled", least=0),
    "TRAIN.SCHEDULE": Key("exponential", "decay of the rate", choices=("exponential", "cosine", "steps")),
    "TRAIN.RESTARTS": Key(True, "the schedule begins anew with every task; False: one goes over all (AKA's code)"),
    "TRAIN.DECAY_START": Key(0.5, "share of the epochs at the full rate; not of steps", least=0, most=1),
    "TRAIN.DECAY_FACTOR": Key(
        0.005,
        "rate in the last epoch, relative to LR, 1 for a single pass; of steps: what each multiplies by",
        above=0,
        most=1,
    ),
    "TRAIN.MILESTONES": Key([], "epochs of the steps, by COUNT_FROM", check=_epoch_numbers),
    "TRAIN.COUNT_FROM": Key(
        1,
        "number of the first epoch in MILESTONES and the warm-up of steps: 1 in BoT's code, 0 in LSTKC's, -1 in AKA's",
        least=-1,
        most=1,
    ),
    "TRAIN.WARMUP_EPOCHS": Key(0, "the rate rises from a hundredth over so many epochs", least=0),
    "TRAIN.ACCUMULATE": Key(1, "batches an update; their mean gradient is taken", least=1),
    "TRAIN.PRECISION": Key("fp32", "of the network in training; tf32 is of GPUs", choices=_PRECISIONS),
    "TRAIN.TEACHER_PRECISION": Key(
        "fp32", "of previous models that are distilled; others than fp32 change their targets", choices=_PRECISIONS
    ),
    "TRAIN.DETERMINISTIC": Key(False, "GPUs give the same figures from the same seed every time, more slowly"),
    "TRAIN.CHECKPOINT_MINUTES": Key(5.0, "time between checkpoints within a task, 0 = every epoch", least=0, free=True),
    "TRAIN.CHECKPOINT_STEPS": Key(0, "a checkpoint after so many steps, too; 0 = by time alone", least=0, free=True),
    "TRAIN.LOGGERS": Key(
        [], "who is told the figures while a run goes on", choices=("tensorboard", "wandb", "mlflow"), free=True
    ),
    "TRAIN.TENSORBOARD": Key(False, "the same as tensorboard among TRAIN.LOGGERS", free=True),
    "EVAL.BACKEND": Key(
        "exact", "what ranks: a comparison with every image, or an index of faiss", choices=("exact", "faiss")
    ),
    "EVAL.INDEX": Key("flat", "of faiss: flat, hnsw, ivfpq, or for index_factory, as in IVF256,Flat;nprobe=16"),
    "EVAL.INDEX_DEPTH": Key(1000, "images that a query asks it for; of flat it gets all", least=1),
    "EVAL.METRIC": Key("cosine", "distance of features", choices=("cosine", "euclidean")),
    "EVAL.AP": Key(
        "rectangular", "average precision; trapezoidal as in DwoPP's code", choices=("rectangular", "trapezoidal")
    ),
    "EVAL.CAMERA_FILTER": Key(True, "leave out gallery images of the query's identity and camera"),
    "EVAL.FLIP": Key(False, "add the features of the flipped image"),
    "EVAL.CROSS_MODEL": Key(
        False, "also search, after each task, the galleries of all earlier ones; keeps their features on disk"
    ),
    "EVAL.UNFUSED": Key(False, "also evaluate the network as it was trained, before it is averaged after a task"),
    "EVAL.DRIFT_STEPS": Key(0, "after a task switch: how far old images move in so many steps; slow", least=0),
    "EVAL.ACCURACY": Key(False, "of classification, too; where classes are tested that were trained"),
    "EVAL.CURVE_IMAGES": Key(
        0, "with ACCURACY, also within tasks: after every so many images of the stream; 0 = after tasks alone", least=0
    ),
    "EVAL.PROBE_OPTIMIZER": Key(
        "sgd", "of the linear classifier on frozen features; adam keeps its rate", choices=("sgd", "adam")
    ),
    "EVAL.PROBE_LR": Key(1.0, "its learning rate", above=0),
    "EVAL.PROBE_EPOCHS": Key(100, "of it", least=1),
    "EVAL.BATCH_SIZE": Key(128, "images a forward pass", least=1),
}
FREE_KEYS = frozenset(name for name, key in KEYS.items() if key.free)


def is_key(word: str) -> bool:
    """Whether a word of a command line is a key of the config."""
    return word in KEYS or word.startswith("METHOD.")
