"""What ``results.json`` holds: plain values, so that it goes into JSON and into checkpoints as it is.

Figures are in per cent.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from lreid.results.metrics import METRICS

SCHEMA = 1
Kind = Literal["seen", "unseen", "merged"]  # merged: the unseen test sets once more, as one
KINDS: tuple[Kind, ...] = ("seen", "unseen")  # that are averaged over several test sets


class Gallery(TypedDict, total=False):
    """A test set, one column of every matrix. ``first_task`` is None where its domain is not trained."""

    name: str
    kind: Kind
    first_task: int | None
    queries: int
    gallery: int
    valid_queries: int


class Results(TypedDict, total=False):
    """The content of ``results.json``. Every metric of :data:`METRICS` has a matrix under its name.

    A matrix has one row for each finished task and one column for each of ``galleries``.
    """

    schema: int
    method: str
    benchmark: str
    protocol: str  # runs with another fingerprint are not to be compared with this one
    content: dict[str, list[str]]  # fingerprints of the images of each of "tasks" and "galleries"
    seed: int
    config: dict[str, Any]  # of all keys those that tell runs apart
    command: str  # that trains the same
    # By key of the config what the files of method and benchmark set, where the run has another value.
    changed: dict[str, Any]
    ap: str  # convention of average precision
    tasks: list[str]
    task_identities: list[int]  # how many each task has
    galleries: list[Gallery]
    mAP: list[list[float]]
    rank1: list[list[float]]
    rank5: list[list[float]]
    rank10: list[list[float]]
    mINP: list[list[float]]
    # By gallery and metric: a row for each task, of its queries in the gallery of the model after each task up to it.
    cross_model: dict[str, dict[str, list[list[float]]]]
    identity_ap: dict[str, dict[str, Any]]  # by gallery: ids, and for each task the AP of each
    identity_names: dict[str, dict[str, str]]  # by gallery, of ids as text; those without one are their own names
    summary: dict[str, float | None]
    accuracy: dict[str, dict[str, list[list[float]]]]  # of classification: a matrix for each classifier
    accuracy_summary: dict[str, dict[str, Any]]
    accuracy_curve: list[dict[str, Any]]  # within tasks: means over the tasks so far, by images seen
    images_seen: int  # of the stream, where that curve is drawn
    method_figures: dict[str, float]  # what the method says of itself
    alignment: list[dict[str, float]]  # after each task, by task: of held-out images with those in the memory
    seconds: dict[str, float]
    images_per_second: float
    peak_memory_mib: int
    loss_history: list[dict[str, float]]
    drift: list[dict[str, Any]]  # of stored and of test images at task switches
    gradient_norms: list[dict[str, Any]]  # of stored and of incoming features there
    teacher_divergence: dict[str, float]  # by task: what TRAIN.TEACHER_PRECISION changes, KL in nats
    exemplars: int
    unfused: dict[str, list[list[float]]]  # by metric: a matrix of the networks before they were averaged after tasks
    stored: dict[str, int]  # between tasks, in bytes: networks, of a domain, of an identity; templates is 1 or 0
    exemplar_bytes: int  # of their pixels, or of their paths
    steps_trained: int
    images_trained: int  # used by the method, an image as often as it was drawn
    skipped: list[str]
    skipped_images: int
    # Of the process that trained last: libraries, and what decides how it rounds (lreid.devices.arithmetic).
    versions: dict[str, str]


def names_of(results: Results) -> list[str]:
    """The metrics that a run has; an earlier version may have known fewer."""
    return [metric.name for metric in METRICS if metric.name in results]


def matrix(results: Results, metric: str) -> list[list[float]]:
    """A metric by finished task and gallery."""
    return results[metric]  # type: ignore[literal-required]


def is_trained(gallery: Gallery, row: int) -> bool:
    """Whether a gallery is seen and its domain had been trained after task ``row``."""
    first = gallery["first_task"]
    return gallery["kind"] == "seen" and first is not None and first <= row


def columns(results: Results, row: int, kind: Kind) -> list[int]:
    """The seen galleries whose domain was trained by task ``row``, or all of another kind."""
    return [
        column
        for column, gallery in enumerate(results["galleries"])
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == kind)
    ]
