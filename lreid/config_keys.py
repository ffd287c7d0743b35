"""The keys of the configuration: sections of keys with default, type, meaning and limits."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from lreid.utils.rules import NORMS, Rule, device_fault

if TYPE_CHECKING:
    T = TypeVar("T")
    Self = TypeVar("Self", bound="CfgNode")

    class CfgNode(dict[str, Any]):
        """Type hints for those methods of yacs that lreid uses, because yacs has none."""

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
        default: default value, whose type all values of the key must have.
        rule: meaning of the key and its allowed values.
        paths: prefixes of those values that contain a path. In a config file, this path may be relative to the file.
        free: whether the key may change when a run resumes; this is only for keys that do not affect results.
    """

    default: Any
    rule: Rule
    paths: tuple[str, ...] = ()
    free: bool = False


def key(default: T, about: str, *, paths: tuple[str, ...] = (), free: bool = False, **limits: Any) -> T:
    """Declare a key in a :class:`Section`; for type checkers, it has the type of the default.

    Args:
        default, paths, free: see :class:`Key`.
        about, limits: see :class:`~lreid.utils.rules.Rule`.
    """
    return cast(Any, Key(default, Rule(about, **limits), paths, free))


class Section(CfgNode):
    """A group of keys as attributes; keys that are not given have their default values.

    ``TrainSection(EPOCHS=3)`` is the group ``cfg.TRAIN`` of a config that sets only ``TRAIN.EPOCHS 3``.
    """

    declared: ClassVar[dict[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        cls.declared = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        for name in cls.declared:  # yacs only looks up a value if the class has no attribute of its name
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


def _names(value: list[Any]) -> str:
    fits = all(type(name) is str for name in value)
    return "" if fits else "it must be a list of names, such as ['market1501'] or ['flip', 'mine.yaml']"


def _groups(value: list[Any]) -> str:
    fits = all(type(each) is list and len(each) > 1 and type(each[0]) is str for each in value)
    return "" if fits else "it must be a list of groups, each a name and its members, such as [['bus', 331, 340]]"


def _folder_name(value: str) -> str:
    fits = value not in (".", "..") and "/" not in value and value.isprintable()
    return "" if fits else "it names the run's folder, so it must be a name, not a path"


_SEED: dict[str, Any] = {"least": 0, "most": 2**32 - 1}
_SOURCES: dict[str, Any] = {"check": _names, "paths": ("csv:", "folder:", "own:")}
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")

# Classes and functions by name; lreid.training defines those of lreid, and plug-ins register more.
OPTIMIZERS: dict[str, Any] = dict.fromkeys(("adam", "adamw", "sgd"))
LOGGERS: dict[str, Any] = dict.fromkeys(("tensorboard", "wandb", "mlflow"))


class BenchmarkSection(Section):
    """Keys that define the tasks, their order and the test sets."""

    NAME = key("synthetic-10", "name of the benchmark in tables and in names of run folders", check=_folder_name)
    TRAIN = key(["synthetic:plaza"], "data sets to train on, in the order of training", **_SOURCES)
    UNSEEN: list[str] = key([], "data sets for testing only; NAME? is left out if it has no folder", **_SOURCES)
    LEARNED: list[str] = key([], "data sets of an earlier run (lreid train --from), which are tested again", **_SOURCES)
    LEARNED_IDENTITIES = key(0, "number of identities of the first task, if an earlier run trained on it", least=0)
    TASKS_PER_DATASET = key(10, "number of tasks into which lreid splits the identities of each data set", least=1)
    POOL = key(False, "merge the data sets of TRAIN into one before it is split into tasks")
    GROUPS: list[list[Any]] = key(
        [],
        "tasks of a single data set, each a name and its cameras or dates; an identity has one label in all of them",
        check=_groups,
    )
    GROUP_BY: Literal["camera", "date"] = key("camera", "GROUPS lists cameras or dates", choices=("camera", "date"))
    IDENTITIES = key(0, "maximum number of training identities per data set; 0 means all", least=0)
    SCENARIO = key(
        "class-incremental",
        "kind of task sequence. class-incremental: every task has its own identities. domain-incremental: every "
        "data set is a task, and all have the same classes",
        choices=("class-incremental", "domain-incremental"),
    )
    JOINT = key(False, "train on all tasks at once (joint training), as an upper bound for lifelong training")
    ORDER = key("ascending", "order of identities when a data set is split into tasks", choices=("ascending", "random"))
    ORDER_SEED = key(0, "seed of the random order of identities (ORDER random)", **_SEED)
    UNSEEN_GALLERIES = key(
        "separate",
        "test sets of unseen data sets: one per data set (separate), one gallery of all (merged, as in AKA), or both",
        choices=("separate", "merged", "both"),
    )
    SPLITS = key(1, "number of random splits to average over, if an unseen data set has several; 0 means all", least=0)
    SPLIT_SEED = key(0, "seed of random training and test splits", **_SEED)
    DEV_SHARE = key(0.2, "share of the training identities that dev:NAME holds out for testing", above=0, most=1)
    CAMERAS: Literal["apart", "same"] = key(
        "apart",
        "camera numbers in data sets without cameras: apart (0 for queries, 1 for the gallery) or same (0 for both)",
        choices=("apart", "same"),
    )


class DataSection(Section):
    """Keys for the source, the cache and the loading of images."""

    ROOT = key("datasets", "folder of the data sets; image paths in a CSV file may be relative to it", free=True)
    PATTERN = key("", "pattern of your image paths, such as {pid}/{camid}_{n}.png; if empty, lreid infers labels")
    CACHE_GIB = key(4.0, "maximum size of the decoded images that lreid keeps in memory, in GiB", least=0, free=True)
    SKIP_BAD_IMAGES = key(False, "leave out images that cannot be read, instead of stopping with an error")
    WORKERS = key(0, "loader processes; 0 is fastest if all images fit into the cache", least=0, most=1024, free=True)
    AUGMENT_ON = key(
        "auto",
        "where images are augmented: cpu, or device (the device of the run). auto means a GPU if there is one",
        choices=("auto", "cpu", "device"),
        free=True,
    )


class SyntheticSection(Section):
    """Keys for the size of the synthetic data sets `synthetic:DOMAIN`."""

    TRAIN_IDENTITIES = key(480, "number of training identities per synthetic domain", least=0)
    TEST_IDENTITIES = key(150, "number of test identities per synthetic domain", least=0)
    IMAGES_PER_IDENTITY = key(10, "number of images per synthetic identity, from several cameras", least=3)
    DISTRACTORS = key(300, "number of gallery images of identities without a query (distractors)", least=0)
    SEED = key(0, "seed of the synthetic population; another seed gives other people and vehicles")


class InputSection(Section):
    """Keys for the input images of the network."""

    HEIGHT = key(64, "height of the network's input images in pixels", least=1, most=4096)
    WIDTH = key(32, "width of the network's input images in pixels", least=1, most=4096)
    MEAN = key([0.485, 0.456, 0.406], "mean of RGB in [0, 1]; trained weights may set it", check=_three_numbers)
    STD = key([0.229, 0.224, 0.225], "standard deviation of RGB; trained weights may set it", check=_three_above_zero)
    PIPELINE = key(
        ["configs/augmentations/flip.yaml"],
        "files of albumentations pipelines for training images, [] for none",
        paths=("",),
        check=_names,
    )


class EpisodeSection(Section):
    """Keys for episodes (support and query images), for methods that train on episodes."""

    IDENTITIES = key(24, "number of identities per episode", least=1)
    SUPPORT = key(4, "number of support images per identity in an episode", least=1)
    QUERY = key(1, "number of query images per identity in an episode", least=1)


class BatchSection(Section):
    """Keys for P x K batches, for methods that do not train on episodes."""

    IDENTITIES = key(24, "number of identities per P x K batch", least=1)
    IMAGES = key(5, "number of images per identity in a P x K batch", least=1)
    OTHER_CAMERAS = key(False, "per identity, draw a random image, then images of other cameras than its own (LSTKC)")
    NEIGHBOURS = key(1, "number of identities of a batch that come from the same cameras; 1 ignores cameras", least=1)


class StreamSection(Section):
    """Keys for a single pass over each task (online learning) instead of epochs."""

    SEGMENT = key(
        0,
        "number of images per training step on a stream; 0 means training in epochs (methods "
        "that need a stream then use steps of P x K images)",
        least=0,
    )
    CORRELATION = key(1, "number of consecutive images of one identity in the stream", least=1)
    ITERATIONS = key(1, "number of optimiser steps on each segment of the stream", least=1)


class ModelSection(Section):
    """Keys for the network."""

    BACKBONE = key(
        "small",
        "backbone of the network: small, resnet18/34/50/101, resnet50_layer3, resnet18_plain/_cifar/_reduced, "
        "digits, mobilenet_v2, torchreid:NAME, timm:NAME, open_clip:NAME",
    )
    WEIGHTS = key("none", "initial weights: none, imagenet, hub (timm), zoo:NAME, package:NAME, or a file", paths=("",))
    POOLING = key(
        "avg",
        "how the last feature map is pooled: mean (avg) or generalised mean (gem, exponent 3). For a transformer, "
        "class selects the class token and patches the mean of the patch tokens",
        choices=("avg", "gem", "class", "patches"),
    )
    NORM = key(
        "batch",
        "normalisation layers of the backbone: BatchNorm (batch) or IBN-Net (ibn_a, ibn_b). +stem adds an instance "
        "norm in the stem and +input one for the input image; +grey corrects the white balance of the input image",
        choices=NORMS,
    )
    SCALE = key(1.0, "factor of the features; set it below 1 if those of the initial model have a large norm", above=0)
    ADAPTER = key(
        "none",
        "adapter, a small part of a transformer that is trained while all other weights are frozen: lora (low-rank "
        "changes of linear layers), bottleneck (a narrow MLP per block), or prompts (learned keys and values)",
        choices=("none", "lora", "bottleneck", "prompts"),
    )
    ADAPTER_SIZE = key(8, "rank of lora, width of bottleneck, or number of prompts per block", least=1)
    ADAPTER_LAYERS = key(0, "number of attention blocks with an adapter, counted from the last; 0 = all", least=0)
    ADAPTER_MERGE = key(False, "after each task, merge lora into the frozen weights and train a new one")


class MethodSection(Section):
    """Keys for the lifelong method; further keys of this group are options of the method."""

    NAME = key("dwopp", "lifelong method: a file of lreid/methods or configs/methods, or a registered name")
    ALIAS = key("", "name of the method in results and tables, for options that turn it into a different method")
    RECIPE = key("dmml", "training recipe for benchmarks of real images: the name of a file in configs/recipes")


class TrainSection(Section):
    """Keys for training each task. If a schedule is in brackets, such as (steps), only this SCHEDULE uses the key."""

    EPOCHS = key(30, "number of epochs per task", least=1)
    FIRST_EPOCHS = key(0, "number of epochs of the first task; 0 means the value of EPOCHS", least=0)
    EPOCH_COVERS = key(
        "identities",
        "what occurs once per epoch: every identity (as in DMML), or nearly every image (as in BoT)",
        choices=("identities", "images"),
    )
    EPOCH_STEPS = key(0, "batches per epoch, for tasks of any size (AKA: 150); 0 = determined by EPOCH_COVERS", least=0)
    OPTIMIZER = key("adam", "optimiser of all parameters; every task starts with a new one", choices=OPTIMIZERS)
    MOMENTUM = key(0.0, "momentum of the optimiser sgd", least=0, most=1)
    LR = key(1e-3, "learning rate; the default suits random weights, 2e-4 suits ImageNet weights", above=0)
    FROZEN_LAYERS = key(0, "number of layers, counted from the input of the backbone, that are not trained", least=0)
    LAYER_DECAY = key(1.0, "learning rate of a backbone layer over that of the next; heads have LR", above=0, most=1)
    BIAS_RATE = key(1.0, "learning rate of biases, relative to that of the weights in their layer", above=0)
    WEIGHT_DECAY = key(1e-4, "weight decay (L2, added to the gradient)", least=0)
    SCHEDULE = key("exponential", "shape of the decay of the learning rate", choices=("exponential", "cosine", "steps"))
    RESTARTS = key(True, "restart the schedule with every task; if False, one schedule spans all tasks (AKA's code)")
    DECAY_START = key(0.5, "fraction of the epochs at the full learning rate (exponential, cosine)", least=0, most=1)
    END_FACTOR = key(0.005, "last learning rate relative to LR (exponential, cosine); 1 = constant", above=0, most=1)
    STEP_FACTOR = key(0.1, "factor applied to LR at each epoch in MILESTONES (steps)", above=0, most=1)
    MILESTONES: list[int] = key([], "epochs at which the learning rate falls (steps)", check=_epoch_numbers)
    FIRST_MILESTONES: list[int] = key([], "MILESTONES of the first task (RESTARTS); [] = same", check=_epoch_numbers)
    FIRST_EPOCH_NUMBER = key(
        1,
        "number of the first epoch, for MILESTONES and the warm-up (steps): 1 in BoT's code, 0 in LSTKC's, -1 in AKA's",
        least=-1,
        most=1,
    )
    WARMUP_EPOCHS = key(0, "number of first epochs in which the learning rate rises to LR (warm-up)", least=0)
    WARMUP_FACTOR = key(0.01, "learning rate at the beginning of the warm-up divided by LR", above=0, most=1)
    CLIP_NORM = key(0.0, "maximum norm of the gradient of all parameters (gradient clipping); 0 = no limit", least=0)
    EMA = key(0.0, "decay of a moving average of the weights, which replaces them after a task", least=0, below=1)
    COMPILE = key(False, "compile the backbone by torch.compile; the first steps of each input size are slow")
    ACCUMULATE = key(1, "number of batches over which each update averages the gradient", least=1)
    PRECISION = key("fp32", "precision of the network in training; tf32 needs a GPU", choices=_PRECISIONS)
    DETERMINISTIC = key(False, "give the same results for the same seed on a GPU; slower")
    CHECKPOINT_MINUTES = key(5.0, "minutes between checkpoints within a task; 0 = every epoch", least=0, free=True)
    CHECKPOINT_STEPS = key(0, "number of steps between additional checkpoints; 0 = none", least=0, free=True)
    LOGGERS: list[str] = key([], "services that also receive metrics", choices=LOGGERS, free=True)


class EvalSection(Section):
    """Keys for the evaluation after every task."""

    BACKEND = key("faiss", "how galleries are searched: exactly, or by an index of faiss", choices=("exact", "faiss"))
    INDEX = key("flat", "faiss index: flat, hnsw, ivfpq, or a string for index_factory, such as IVF256,Flat;nprobe=16")
    INDEX_DEPTH = key(1000, "number of images that the index returns for a query; flat returns all images", least=1)
    INDEX_DEVICE = key("auto", "device of faiss: cpu, cuda (all GPUs together), cuda:N, or auto (a GPU if possible)")
    INDEX_FLOAT16 = key(False, "store vectors on GPUs in 16 bits; scores then keep three digits, even those of flat")
    METRIC: Literal["cosine", "euclidean"] = key("cosine", "distance between features", choices=("cosine", "euclidean"))
    AP: Literal["rectangular", "trapezoidal"] = key(
        "rectangular",
        "convention of average precision (AP): rectangular is the usual one; trapezoidal is that of DwoPP's code",
        choices=("rectangular", "trapezoidal"),
    )
    CAMERA_FILTER = key(True, "leave out gallery images with both the identity and the camera of the query")
    OUTFITS: Literal["both", "same", "changed"] = key(
        "both",
        "matches that count for a query: images in the same outfit, in a changed outfit, or "
        "both; the data set must have outfits",
        choices=("both", "same", "changed"),
    )
    FLIP = key(False, "add the features of the mirrored image to the features of an image")
    CROSS_MODEL = key(False, "after each task, also search the galleries of earlier models, whose features are stored")
    UNFUSED = key(False, "also evaluate the network before its weights are averaged with the previous network")
    INITIAL = key(False, "also evaluate the initial model, before the first task")
    DRIFT_STEPS = key(0, "number of steps after a task switch in which feature drift is measured; slow", least=0)
    ACCURACY = key(False, "also measure classification accuracy, for data sets with test images of the trained classes")
    CURVE_IMAGES = key(0, "training images between measurements of ACCURACY in a task; 0 = only after tasks", least=0)
    PROBE_OPTIMIZER = key("sgd", "optimiser of the linear probe; the rate of adam is constant", choices=("sgd", "adam"))
    PROBE_INPUT = key("fixed", "linear probe's input: fixed or newly augmented images", choices=("fixed", "augmented"))
    PROBE_LR = key(1.0, "learning rate of the linear probe", above=0)
    PROBE_EPOCHS = key(100, "number of epochs used to train the linear probe", least=1)
    BATCH_SIZE = key(128, "number of images per forward pass in the evaluation", least=1)


class Config(Section):
    """The config with all keys; its defaults train DwoPP (BMVC 2022) on the built-in benchmark ``synthetic-10``.

    Recipes from papers for real images are in ``configs/recipes``.
    """

    SEED = key(0, "seed of all random number generators", **_SEED)
    DEVICE = key("auto", "device: cpu, cuda, cuda:1 …, or auto (the first GPU, if any)", free=True, check=device_fault)
    IMPORTS: list[str] = key([], "plug-ins of the run; lreid sets it, see --import", paths=("",), free=True)

    def __init__(self) -> None:
        super().__init__()
        self.BENCHMARK = BenchmarkSection()
        self.DATA = DataSection()
        self.SYNTHETIC = SyntheticSection()
        self.INPUT = InputSection()
        self.EPISODE = EpisodeSection()
        self.BATCH = BatchSection()
        self.STREAM = StreamSection()
        self.MODEL = ModelSection()
        self.METHOD = MethodSection()
        self.TRAIN = TrainSection()
        self.EVAL = EvalSection()


_SECTIONS: dict[str, Section] = {name: each for name, each in Config().items() if isinstance(each, Section)}
GROUPS = {name: inspect.getdoc(type(each)) or "" for name, each in _SECTIONS.items()}
KEYS = Config.declared | {
    f"{group}.{name}": each for group, section in _SECTIONS.items() for name, each in section.declared.items()
}
FREE_KEYS = frozenset(name for name, each in KEYS.items() if each.free)


def is_key(word: str) -> bool:
    """Whether a word of a command line is a config key, or looks like a misspelled one."""
    group, _, name = word.partition(".")
    return word in KEYS or (group in GROUPS and name.isupper())
