"""The keys of the configuration: one table of sections with each key's default, type, meaning and limits."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from lreid.rules import Rule

if TYPE_CHECKING:
    T = TypeVar("T")
    Self = TypeVar("Self", bound="CfgNode")

    class CfgNode(dict[str, Any]):
        """What lreid uses of yacs, which comes without types."""

        def clone(self: Self) -> Self: ...  # noqa: D102
        def dump(self) -> str: ...  # noqa: D102
        def freeze(self) -> None: ...  # noqa: D102
        def defrost(self) -> None: ...  # noqa: D102
else:
    from yacs.config import CfgNode


@dataclass(frozen=True)
class Key:
    """A key of the config.

    Args:
        default: value where nothing sets it, whose type its values have.
        rule: its meaning, and which values it may have.
        paths: values that begin with one of these continue with a path, which a file may give relative to itself.
        free: it may change when a run is taken up again: where and how often a run works, not what it computes.
    """

    default: Any
    rule: Rule
    paths: tuple[str, ...] = ()
    free: bool = False


def key(default: T, about: str, *, paths: tuple[str, ...] = (), free: bool = False, **limits: Any) -> T:
    """Declares a key in a :class:`Section`; for types it is what its values are.

    Args:
        default, paths, free: of :class:`Key`.
        about, limits: of :class:`~lreid.rules.Rule`.
    """
    return cast(Any, Key(default, Rule(about, **limits), paths, free))


class Section(CfgNode):
    """A group of keys: its attributes are their values, the defaults but for those that are given.

    ``Train(EPOCHS=3)`` is what ``cfg.TRAIN`` is where a config sets nothing else.
    """

    declared: ClassVar[dict[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        cls.declared = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        for name in cls.declared:  # yacs looks values up where a class has no attribute of the name
            delattr(cls, name)

    def __init__(self, **values: Any) -> None:
        super().__init__()
        if unknown := values.keys() - self.declared.keys():
            raise TypeError(f"{type(self).__name__} has no key {', '.join(sorted(unknown))}")
        self.update({name: copy.copy(each.default) for name, each in self.declared.items()} | values)


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


_SEED: dict[str, Any] = {"least": 0, "most": 2**32 - 1}
_SOURCES: dict[str, Any] = {"check": _data_sets, "paths": ("csv:", "folder:", "own:")}
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


class Benchmark(Section):
    """What is learned, in which order, and what is tested."""

    NAME = key("synthetic-10", "shown in tables", check=_folder_name)
    TRAIN = key(["synthetic:plaza"], "data sets in the order they are learned", **_SOURCES)
    UNSEEN: list[str] = key([], "data sets that are only tested on", **_SOURCES)
    LEARNED: list[str] = key([], "those learned before this run (lreid train --from): tested on again", **_SOURCES)
    LEARNED_IDENTITIES = key(0, "identities learned before this run; they are its first task", least=0)
    TASKS_PER_DATASET = key(10, "tasks that the identities of each set are cut into", least=1)
    POOL = key(False, "merge the sets of TRAIN into one before cutting")
    IDENTITIES = key(0, "at most so many training identities a set, 0 = all", least=0)
    SCENARIO = key(
        "class-incremental",
        "every task has identities of its own; domain-incremental: each set is a task, with the same classes",
        choices=("class-incremental", "domain-incremental"),
    )
    JOINT = key(False, "learn all tasks at once, as an upper bound")
    ORDER = key("ascending", "order of identities", choices=("ascending", "random"))
    ORDER_SEED = key(0, "seed of the random order", **_SEED)
    UNSEEN_GALLERIES = key(
        "separate", "unseen sets apart, merged into one (as AKA does), or both", choices=("separate", "merged", "both")
    )
    SPLITS = key(1, "of unseen sets with 10 or 20 random splits average over so many, 0 = all", least=0)
    SPLIT_SEED = key(0, "seed of the random splits", **_SEED)
    CAMERAS: Literal["apart", "same"] = key(
        "apart", "of sets without cameras: apart (query 0, gallery 1) or same (both 0)", choices=("apart", "same")
    )


class Data(Section):
    """Where images come from, and how they are kept and loaded."""

    ROOT = key("datasets", "folder that holds the data sets", free=True)
    CACHE_GIB = key(4.0, "decoded images of a task are kept in memory up to this size, GiB", least=0, free=True)
    CACHE_DIR = key("", "folder on disk for those that do not fit; empty: decode them in every epoch", free=True)
    CACHE_DIR_GIB = key(50.0, "size up to which it is filled, GiB", least=0, free=True)
    SKIP_BAD_IMAGES = key(False, "leave out images that cannot be read instead of stopping")
    WORKERS = key(0, "loader processes; 0 is fastest while the images fit in the cache", least=0, free=True)
    AUGMENT_ON = key(
        "auto",
        "what flips, normalises and erases: cpu, or the device, which is then sent uint8; auto: a GPU does",
        choices=("auto", "cpu", "device"),
        free=True,
    )


class Synthetic(Section):
    """Size of the synthetic data sets, `synthetic:DOMAIN`."""

    TRAIN_IDENTITIES = key(480, "identities to train on", least=0)
    TEST_IDENTITIES = key(150, "identities to search for", least=0)
    IMAGES_PER_IDENTITY = key(10, "images of each, under several cameras", least=3)
    DISTRACTORS = key(300, "gallery images of identities without a query", least=0)
    SEED = key(0, "another seed makes another population")


class Input(Section):
    """What the network is given."""

    HEIGHT = key(64, "pixels", least=1, most=4096)
    WIDTH = key(32, "pixels", least=1, most=4096)
    MEAN = key([0.485, 0.456, 0.406], "of RGB in [0, 1]; trained weights may set it", check=_three_numbers)
    STD = key([0.229, 0.224, 0.225], "of RGB in [0, 1]; trained weights may set it", check=_three_above_zero)
    FLIP = key(0.5, "probability of a horizontal flip", least=0, most=1)
    ERASING = key(False, "random erasing; by itself that of DMML, growing over a task's epochs")
    ERASING_PROBABILITY = key(
        0.0, "above 0, erasing is that of BoT: so often, 2 to 40 % of an image, filled with INPUT.MEAN", least=0, most=1
    )
    PAD = key(0, "black pixels on every side, of which a random crop is taken", least=0, most=4096)
    PIPELINE = key("", "file of an albumentations pipeline that comes before flip and erasing", paths=("",))


class Episode(Section):
    """Batches of the methods that learn from episodes of support and query images."""

    IDENTITIES = key(24, "identities an episode", least=1)
    SUPPORT = key(4, "support images an identity", least=1)
    QUERY = key(1, "query images an identity", least=1)


class Batch(Section):
    """P x K batches, of all other methods."""

    IDENTITIES = key(24, "identities a batch", least=1)
    IMAGES = key(5, "images an identity", least=1)
    OTHER_CAMERAS = key(False, "an identity's images are one and others by other cameras (LSTKC)")
    NEIGHBOURS = key(1, "with these: identities come in groups of so many that the same cameras saw", least=1)


class Stream(Section):
    """A single pass over each task in place of epochs of batches."""

    SEGMENT = key(0, "images a step; 0 = batches (a method that needs a stream: P x K images)", least=0)
    CORRELATION = key(1, "images of an identity in a row", least=1)
    ITERATIONS = key(1, "steps on every segment", least=1)


class Model(Section):
    """The network."""

    BACKBONE = key(
        "small",
        "small, resnet18/34/50/101, resnet50_layer3, resnet18_plain/_cifar/_reduced, digits, mobilenet_v2, "
        "torchreid:NAME, timm:NAME",
    )
    WEIGHTS = key("none", "none, imagenet, hub (of timm), zoo:NAME, package:NAME, or a file", paths=("",))
    POOLING = key(
        "avg",
        "of the last map: mean, or generalised mean (GeM, p = 3); of a transformer, in place of its own: class token, "
        "or mean of its patches",
        choices=("avg", "gem", "class", "patches"),
    )
    NORM = key(
        "batch",
        "normalisation layers of the backbone: BatchNorm, or instance norms as in IBN-Net, in the stem, of the input "
        "image; +grey applies white balance",
        choices=tuple(
            norm + entry
            for norm in ("batch", "batch+stem", "ibn_a", "ibn_a+stem", "ibn_b")
            for entry in ("", "+input", "+grey")
        ),
    )
    SCALE = key(1.0, "features are multiplied by it; below 1 where those of the start are long", above=0)


class Method(Section):
    """The lifelong method. All further keys are its options."""

    NAME = key("dwopp", "a file of lreid/methods or configs/methods, or a registered name")
    ALIAS = key("", "its name in results and tables where its options make another method of it")
    RECIPE = key("dmml", "file of configs/recipes that benchmarks of real images train it by")


class Train(Section):
    """The training of a task."""

    EPOCHS = key(30, "of a task", least=1)
    FIRST_EPOCHS = key(0, "of the first task; 0 = as many as of the others", least=0)
    EPOCH_OF = key(
        "identities",
        "a look at every identity (DMML), or at about every image (BoT); in a stream always at every image",
        choices=("identities", "images"),
    )
    EPOCH_STEPS = key(0, "batches an epoch, whatever the size of the task (AKA: 150); 0 = one look", least=0)
    OPTIMIZER = key("adam", "optimiser of all parameters; each task starts with a new one", choices=("adam", "sgd"))
    MOMENTUM = key(0.0, "of sgd", least=0, most=1)
    LR = key(1e-3, "learning rate from random weights; from those of ImageNet 2e-4", above=0)
    FROZEN_LAYERS = key(0, "of the backbone, from the images on, that stay as they begin", least=0)
    LAYER_DECAY = key(
        1.0, "rate of a layer of the backbone, relative to that of the next one; the last one's to LR", above=0, most=1
    )
    BIAS_RATE = key(1.0, "rate of the biases of the network, relative to that of their layer", above=0)
    WEIGHT_DECAY = key(1e-4, "L2, coupled", least=0)
    SCHEDULE = key("exponential", "decay of the rate", choices=("exponential", "cosine", "steps"))
    RESTARTS = key(True, "restart the schedule with every task; False: one schedule spans all tasks (AKA's code)")
    DECAY_START = key(0.5, "share of the epochs at the full rate; not of steps", least=0, most=1)
    DECAY_FACTOR = key(
        0.005,
        "rate in the last epoch, relative to LR, 1 for a single pass; of steps: what each multiplies by",
        above=0,
        most=1,
    )
    MILESTONES: list[int] = key([], "epochs of the steps, by COUNT_FROM", check=_epoch_numbers)
    COUNT_FROM = key(
        1,
        "number of the first epoch in MILESTONES and the warm-up of steps: 1 in BoT's code, 0 in LSTKC's, -1 in AKA's",
        least=-1,
        most=1,
    )
    WARMUP_EPOCHS = key(0, "the rate rises from a hundredth over so many epochs", least=0)
    ACCUMULATE = key(1, "batches an update; their mean gradient is taken", least=1)
    PRECISION = key("fp32", "of the network in training; tf32 is of GPUs", choices=_PRECISIONS)
    TEACHER_PRECISION = key(
        "fp32", "of previous models that are distilled; others than fp32 change their targets", choices=_PRECISIONS
    )
    DETERMINISTIC = key(False, "GPUs give the same figures from the same seed every time, more slowly")
    CHECKPOINT_MINUTES = key(5.0, "time between checkpoints within a task, 0 = every epoch", least=0, free=True)
    CHECKPOINT_STEPS = key(0, "a checkpoint after so many steps, too; 0 = by time alone", least=0, free=True)
    LOGGERS: list[str] = key(
        [], "services that also receive the metrics during a run", choices=("tensorboard", "wandb", "mlflow"), free=True
    )


class Eval(Section):
    """The evaluation after every task."""

    BACKEND = key(
        "exact", "what ranks: a comparison with every image, or an index of faiss", choices=("exact", "faiss")
    )
    INDEX = key("flat", "of faiss: flat, hnsw, ivfpq, or for index_factory, as in IVF256,Flat;nprobe=16")
    INDEX_DEPTH = key(1000, "images that a query asks it for; of flat it gets all", least=1)
    METRIC: Literal["cosine", "euclidean"] = key("cosine", "distance of features", choices=("cosine", "euclidean"))
    AP: Literal["rectangular", "trapezoidal"] = key(
        "rectangular", "average precision; trapezoidal as in DwoPP's code", choices=("rectangular", "trapezoidal")
    )
    CAMERA_FILTER = key(True, "leave out gallery images of the query's identity and camera")
    FLIP = key(False, "add the features of the flipped image")
    CROSS_MODEL = key(
        False, "also search, after each task, the galleries of all earlier ones; keeps their features on disk"
    )
    UNFUSED = key(False, "also evaluate the network as it was trained, before it is averaged after a task")
    DRIFT_STEPS = key(0, "after a task switch: how far old images move in so many steps; slow", least=0)
    ACCURACY = key(False, "of classification, too; where classes are tested that were trained")
    CURVE_IMAGES = key(
        0, "with ACCURACY, also within tasks: after every so many images of the stream; 0 = after tasks alone", least=0
    )
    PROBE_OPTIMIZER = key(
        "sgd", "of the linear classifier on frozen features; adam keeps its rate", choices=("sgd", "adam")
    )
    PROBE_LR = key(1.0, "its learning rate", above=0)
    PROBE_EPOCHS = key(100, "of it", least=1)
    BATCH_SIZE = key(128, "images a forward pass", least=1)


class Config(Section):
    """All keys; by default DwoPP (BMVC 2022) on the built-in benchmark ``synthetic-10``.

    The recipes of the papers, for real images, are in ``configs/recipes``.
    """

    SEED = key(0, "one seed for all random generators", **_SEED)
    DEVICE = key("auto", "auto, cpu, cuda, cuda:1 …; auto is the first GPU where there is one", free=True)

    def __init__(self) -> None:
        super().__init__()
        self.BENCHMARK = Benchmark()
        self.DATA = Data()
        self.SYNTHETIC = Synthetic()
        self.INPUT = Input()
        self.EPISODE = Episode()
        self.BATCH = Batch()
        self.STREAM = Stream()
        self.MODEL = Model()
        self.METHOD = Method()
        self.TRAIN = Train()
        self.EVAL = Eval()


_SECTIONS: dict[str, Section] = {name: each for name, each in Config().items() if isinstance(each, Section)}
GROUPS = {name: inspect.getdoc(type(each)) or "" for name, each in _SECTIONS.items()}
KEYS = Config.declared | {
    f"{group}.{name}": each for group, section in _SECTIONS.items() for name, each in section.declared.items()
}
FREE_KEYS = frozenset(name for name, each in KEYS.items() if each.free)


def is_key(word: str) -> bool:
    """Whether a word of a command line is a key of the config, or was one."""
    return word in KEYS or word in REMOVED or word.startswith("METHOD.")


@dataclass(frozen=True)
class Removed:
    """A key of earlier versions.

    Args:
        instead: what to write in its place.
        translate: the keys that stand for its value in the config of an old run, of that value and the run's keys.
    """

    instead: str
    translate: Callable[[Any, Mapping[str, Any]], dict[str, Any]]


REMOVED = {
    "TRAIN.TENSORBOARD": Removed(
        "TRAIN.LOGGERS tensorboard",
        lambda value, keys: {"TRAIN.LOGGERS": [*keys.get("TRAIN.LOGGERS", []), *["tensorboard"] * bool(value)]},
    )
}
