"""The content of ``results.json``: plain values, which JSON and checkpoints can store.

Metrics are in per cent.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_type_hints

from lreid.results.metrics import METRICS

SCHEMA = 1

# Forms of values, in the notation of lreid.utils.reading.misfit.
NUMBER = (int, float)
FIGURE = (int, float, type(None))
CURVES = {"step": [NUMBER], "since_switch": [NUMBER]}
ANYTIME = {"anytime_accuracy": [NUMBER]}
POINT = {"images": int, "accuracy": {str: {"class": NUMBER, "task": NUMBER}}}
GALLERY = {"name": str, "kind": str, "first_task": (int, type(None)), "queries?": int, "gallery?": int}

Kind = Literal["seen", "unseen", "merged"]  # merged: all unseen test sets as one
KINDS: tuple[Kind, ...] = ("seen", "unseen")  # kinds that are averaged over several test sets


class Gallery(TypedDict, total=False):
    """A test set; each matrix has a column for it. ``first_task`` is None if no task trains on its domain."""

    name: str
    kind: Kind
    first_task: int | None
    queries: int
    gallery: int
    valid_queries: int


class Key(NamedTuple):
    """The required form of a key of ``results.json``, and its initial value.

    Attributes:
        form: form of the value, see :func:`lreid.utils.reading.misfit`; None allows any value: no report reads it.
        empty: function that creates the value before the first task, or None if the run sets it.
        needed: whether results without this key are refused. Keys that are not needed may be missing in results of
            earlier versions of lreid.
    """

    form: Any = None
    empty: Callable[[], Any] | None = None
    needed: bool = False


class Results(TypedDict, total=False):
    """The content of ``results.json``: each key with its type, its form and its initial value.

    Every metric in :data:`METRICS` has a matrix under its name, with one row per finished task and one column per
    gallery. This class lists only some of the metrics.
    """

    schema: int
    method: Annotated[str, Key(str, needed=True)]
    benchmark: Annotated[str, Key(str, needed=True)]
    # Fingerprint of the protocol; runs with different fingerprints must not be compared.
    protocol: Annotated[str, Key(str)]
    # Fingerprints of the images of each task ("tasks") and each gallery ("galleries").
    content: Annotated[dict[str, list[str]], Key({str: [str]})]
    seed: Annotated[int, Key(int, needed=True)]
    # The config keys that distinguish runs.
    config: Annotated[dict[str, Any], Key({})]
    # The command that repeats the run.
    command: Annotated[str, Key(str)]
    # Config keys that the run changes, with their values in the files of method and benchmark.
    changed: Annotated[dict[str, Any], Key({})]
    # Convention of average precision.
    ap: Annotated[str, Key(str, needed=True)]
    tasks: Annotated[list[str], Key([str], needed=True)]
    # Number of identities per task.
    task_identities: Annotated[list[int], Key([int])]
    galleries: Annotated[list[Gallery], Key([GALLERY], needed=True)]
    mAP: list[list[float]]
    rank1: list[list[float]]
    # By gallery and metric: a triangular matrix. Row t has one value per model after tasks 0 to t: the metric of
    # queries by the model after task t in the gallery features of that model.
    cross_model: Annotated[dict[str, dict[str, list[list[float]]]], Key({str: {str: [[NUMBER]]}}, dict)]
    # By gallery: ids of the identities, their numbers of queries, and one row per task with their AP.
    identity_ap: Annotated[
        dict[str, dict[str, Any]], Key({str: {"ids": [int], "queries?": [int], "ap": [[NUMBER]]}}, dict)
    ]
    # The model before the first task: by metric, one value per gallery; and by gallery, the AP of each identity.
    initial: Annotated[dict[str, list[float]], Key({str: [NUMBER]}, dict)]
    initial_ap: Annotated[dict[str, list[float]], Key({str: [NUMBER]}, dict)]
    # By gallery: names of identities by their ids as text; an id without an entry is its own name.
    identity_names: Annotated[dict[str, dict[str, str]], Key({str: {str: str}})]
    summary: Annotated[dict[str, float | None], Key({str: FIGURE}, dict, needed=True)]
    # Classification: accuracy matrices of each classifier.
    accuracy: Annotated[
        dict[str, dict[str, list[list[float]]]], Key({str: {"class": [[NUMBER]], "task": [[NUMBER]]}}, dict)
    ]
    accuracy_summary: Annotated[dict[str, dict[str, Any]], Key({str: {"class": ANYTIME, "task": ANYTIME}}, dict)]
    # Within tasks: mean accuracy over the tasks so far, by number of images.
    accuracy_curve: Annotated[list[dict[str, Any]], Key([POINT], list)]
    # Number of images of the stream so far, if there is an accuracy curve.
    images_seen: Annotated[int, Key(None, int)]
    # Values that the method reports.
    method_figures: Annotated[dict[str, float], Key(None, dict)]
    # One entry per task: by past task, the similarity of stored images to held-out images.
    alignment: Annotated[list[dict[str, float]], Key([{str: NUMBER}], list)]
    seconds: Annotated[
        dict[str, float], Key({str: NUMBER}, lambda: dict.fromkeys(("train", "train_cpu", "evaluate"), 0.0))
    ]
    images_per_second: Annotated[float, Key(NUMBER)]
    peak_memory_mib: Annotated[int, Key(NUMBER, int)]
    loss_history: Annotated[list[dict[str, float]], Key([{"task": int, "epoch": int, str: NUMBER}], list)]
    # Feature drift of stored and of test images after task switches.
    drift: Annotated[list[dict[str, Any]], Key([{"task": int, str: CURVES}], list)]
    # Norms of the loss gradient at features of stored and of incoming images after task switches.
    gradient_norms: Annotated[list[dict[str, Any]], Key([{"task": int, str: [FIGURE]}], list)]
    # By metric: a matrix of the networks before they were averaged at the end of tasks.
    unfused: Annotated[dict[str, list[list[float]]], Key({str: [[NUMBER]]}, dict)]
    # Bytes stored between tasks: networks, per domain, per identity; "templates" is 1 if features of people are stored.
    stored: Annotated[dict[str, int], Key({str: int}, dict)]
    exemplars: Annotated[int, Key(int, int)]
    # Bytes of the exemplars' pixels or paths.
    exemplar_bytes: Annotated[int, Key(None, int)]
    steps_trained: Annotated[int, Key(int, int)]
    # Number of training images; an image counts each time it was drawn.
    images_trained: Annotated[int, Key(int, int)]
    skipped: list[str]
    skipped_images: Annotated[int, Key(int)]
    # Versions of libraries in the last training process, and what decides its rounding (utils.devices.arithmetic).
    versions: Annotated[dict[str, str], Key({str: str})]


def keys() -> dict[str, Key]:
    """Return all keys of ``results.json`` that have a :class:`Key` annotation, by name."""
    hints = get_type_hints(Results, include_extras=True)
    return {name: key for name, hint in hints.items() for key in getattr(hint, "__metadata__", ())}


def names_of(results: Results) -> list[str]:
    """Return the names of the metrics in a run's results; earlier versions of lreid had fewer metrics."""
    return [metric.name for metric in METRICS if metric.name in results]


def matrix(results: Results, metric: str) -> list[list[float]]:
    """Return the matrix of a metric, with one row per finished task and one column per gallery."""
    return results[metric]  # type: ignore[literal-required]


def averaged_kinds(results: Results) -> list[Kind]:
    """Return the kinds of test sets that are reported as a mean, because the run has several of the kind."""
    return [kind for kind in KINDS if sum(gallery["kind"] == kind for gallery in results["galleries"]) > 1]


def is_trained(gallery: Gallery, row: int) -> bool:
    """Whether a gallery's domain was trained in a task up to ``row``."""
    first = gallery["first_task"]
    return gallery["kind"] == "seen" and first is not None and first <= row


def columns(results: Results, row: int, kind: Kind) -> list[int]:
    """Return the columns of galleries of a kind; a seen gallery counts once a task up to ``row`` trained it."""
    return [
        column
        for column, gallery in enumerate(results["galleries"])
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == kind)
    ]
