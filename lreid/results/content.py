"""The content of ``results.json``: plain values, which fit into JSON and into checkpoints.

Figures are in per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_type_hints

from lreid.results.metrics import METRICS

SCHEMA = 1

# Forms of lreid.reading.misfit.
NUMBER = (int, float)
FIGURE = (int, float, type(None))
CURVES = {"step": [NUMBER], "since_switch": [NUMBER]}
ANYTIME = {"anytime_accuracy": [NUMBER]}
POINT = {"images": int, "accuracy": {str: {"class": NUMBER, "task": NUMBER}}}
GALLERY = {"name": str, "kind": str, "first_task": (int, type(None)), "queries?": int, "gallery?": int}

Kind = Literal["seen", "unseen", "merged"]  # merged: the unseen test sets once more, as one
KINDS: tuple[Kind, ...] = ("seen", "unseen")  # that are averaged over several test sets


class Gallery(TypedDict, total=False):
    """A test set, which is one column of every matrix. ``first_task`` is None if its domain is not trained."""

    name: str
    kind: Kind
    first_task: int | None
    queries: int
    gallery: int
    valid_queries: int


class Key(NamedTuple):
    """The form of a key of ``results.json``, and its first value.

    Attributes:
        form: as in :func:`lreid.reading.misfit`; None if no report reads it, so that any value fits.
        empty: makes what it holds before the first task; None where the run says it.
        needed: results without it are refused; earlier versions may not have known others.
    """

    form: Any = None
    empty: Callable[[], Any] | None = None
    needed: bool = False


class Results(TypedDict, total=False):
    """The content of ``results.json``: each key with its type, its form and what it begins with, here and nowhere else.

    Every metric of :data:`METRICS` has a matrix under its name, also those that are not typed here: a row for each
    finished task and a column for each of ``galleries``.
    """

    schema: int
    method: Annotated[str, Key(str, needed=True)]
    benchmark: Annotated[str, Key(str, needed=True)]
    # Runs with another fingerprint are not to be compared with this one.
    protocol: Annotated[str, Key(str)]
    # Fingerprints of the images of each of "tasks" and "galleries".
    content: Annotated[dict[str, list[str]], Key({str: [str]})]
    seed: Annotated[int, Key(int, needed=True)]
    # Of all keys those in which runs differ.
    config: Annotated[dict[str, Any], Key({})]
    # That trains the same.
    command: Annotated[str, Key(str)]
    # By key of the config what the files of method and benchmark set, where the run has another value.
    changed: Annotated[dict[str, Any], Key({})]
    # Convention of average precision.
    ap: Annotated[str, Key(str, needed=True)]
    tasks: Annotated[list[str], Key([str], needed=True)]
    # How many each task has.
    task_identities: Annotated[list[int], Key([int])]
    galleries: Annotated[list[Gallery], Key([GALLERY], needed=True)]
    mAP: list[list[float]]
    rank1: list[list[float]]
    # By gallery and metric: a row for each task, of its queries in the gallery of the model after each task up to it.
    cross_model: Annotated[dict[str, dict[str, list[list[float]]]], Key({str: {str: [[NUMBER]]}}, dict)]
    # By gallery: ids, the number of queries of each, and for each task the AP of each.
    identity_ap: Annotated[
        dict[str, dict[str, Any]], Key({str: {"ids": [int], "queries?": [int], "ap": [[NUMBER]]}}, dict)
    ]
    # Of the model before the first task, by metric: a value for each gallery; and the AP of each identity by gallery.
    initial: Annotated[dict[str, list[float]], Key({str: [NUMBER]}, dict)]
    initial_ap: Annotated[dict[str, list[float]], Key({str: [NUMBER]}, dict)]
    # By gallery, of ids as text; those without one are their own names.
    identity_names: Annotated[dict[str, dict[str, str]], Key({str: {str: str}})]
    summary: Annotated[dict[str, float | None], Key({str: FIGURE}, dict, needed=True)]
    # Of classification: a matrix for each classifier.
    accuracy: Annotated[
        dict[str, dict[str, list[list[float]]]], Key({str: {"class": [[NUMBER]], "task": [[NUMBER]]}}, dict)
    ]
    accuracy_summary: Annotated[dict[str, dict[str, Any]], Key({str: {"class": ANYTIME, "task": ANYTIME}}, dict)]
    # Within tasks: means over the tasks so far, by images seen.
    accuracy_curve: Annotated[list[dict[str, Any]], Key([POINT], list)]
    # Of the stream, where that curve is drawn.
    images_seen: Annotated[int, Key(None, int)]
    # What the method says of itself.
    method_figures: Annotated[dict[str, float], Key(None, dict)]
    # After each task, by task: of held-out images with those in the memory.
    alignment: Annotated[list[dict[str, float]], Key([{str: NUMBER}], list)]
    seconds: Annotated[
        dict[str, float], Key({str: NUMBER}, lambda: dict.fromkeys(("train", "train_cpu", "evaluate"), 0.0))
    ]
    images_per_second: Annotated[float, Key(NUMBER)]
    peak_memory_mib: Annotated[int, Key(NUMBER, int)]
    loss_history: Annotated[list[dict[str, float]], Key([{"task": int, "epoch": int, str: NUMBER}], list)]
    # Of stored and of test images at task switches.
    drift: Annotated[list[dict[str, Any]], Key([{"task": int, str: CURVES}], list)]
    # Of stored and of incoming features there.
    gradient_norms: Annotated[list[dict[str, Any]], Key([{"task": int, str: [FIGURE]}], list)]
    # By metric: a matrix of the networks before they were averaged after tasks.
    unfused: Annotated[dict[str, list[list[float]]], Key({str: [[NUMBER]]}, dict)]
    # Between tasks, in bytes: networks, of a domain, of an identity; templates is 1 or 0.
    stored: Annotated[dict[str, int], Key({str: int}, dict)]
    exemplars: Annotated[int, Key(int, int)]
    # Of their pixels, or of their paths.
    exemplar_bytes: Annotated[int, Key(None, int)]
    steps_trained: Annotated[int, Key(int, int)]
    # Used by the method, an image as often as it was drawn.
    images_trained: Annotated[int, Key(int, int)]
    skipped: list[str]
    skipped_images: Annotated[int, Key(int)]
    # Of the process that trained last: libraries, and what decides how it rounds (lreid.devices.arithmetic).
    versions: Annotated[dict[str, str], Key({str: str})]


def keys() -> dict[str, Key]:
    """The keys that have a :class:`Key`, by name."""
    hints = get_type_hints(Results, include_extras=True)
    return {name: key for name, hint in hints.items() for key in getattr(hint, "__metadata__", ())}


def names_of(results: Results) -> list[str]:
    """The metrics that a run has; an earlier version may have known fewer."""
    return [metric.name for metric in METRICS if metric.name in results]


def matrix(results: Results, metric: str) -> list[list[float]]:
    """A metric by finished task and gallery."""
    return results[metric]  # type: ignore[literal-required]


def averaged_kinds(results: Results) -> list[Kind]:
    """The kinds of which a run has several test sets: the mean of one repeats it."""
    return [kind for kind in KINDS if sum(gallery["kind"] == kind for gallery in results["galleries"]) > 1]


def is_trained(gallery: Gallery, row: int) -> bool:
    """Whether a gallery is seen and its domain had been trained after task ``row``."""
    first = gallery["first_task"]
    return gallery["kind"] == "seen" and first is not None and first <= row


def columns(results: Results, row: int, kind: Kind) -> list[int]:
    """Columns of a kind of galleries; for seen ones, only those whose domain was trained by task ``row``."""
    return [
        column
        for column, gallery in enumerate(results["galleries"])
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == kind)
    ]
