"""The content of ``results.json``: plain values, which JSON and checkpoints can store. Metrics are in per cent."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_type_hints

import numpy as np

from lreid.errors import InputError
from lreid.utils.extras import registrar
from lreid.utils.files import write_text
from lreid.utils.reading import escaped, misfit, raise_if_unreadable, read_json, require_not_newer

RESULTS_SCHEMA = 1

# Forms of values, in the notation of lreid.utils.reading.misfit.
REAL = (int, float)
REAL_OR_NONE = (int, float, type(None))
CURVES_FORM = {"step": [REAL], "since_switch": [REAL]}
ANYTIME_FORM = {kind: {"anytime_accuracy": [REAL]} for kind in ("class", "task")}
HISTORY_FORM = {"ids": [int], "queries?": [int], "ap": [[REAL]]}
POINT_FORM = {"images": int, "accuracy": {str: {"class": REAL, "task": REAL}}}
GALLERY_FORM = {"name": str, "kind": str, "first_task": (int, type(None)), "queries?": int, "gallery?": int}

Matrices = dict[str, dict[str, list[list[float]]]]  # by gallery and metric, or by classifier and kind
Kind = Literal["seen", "unseen", "merged"]  # merged: all unseen test sets as one
MEAN_KINDS: tuple[Kind, ...] = ("seen", "unseen")  # kinds that are averaged over several test sets

# Keys of the metrics in galleries of earlier models, with the prefix of their means in the summary.
CrossedKey = Literal["cross_model", "cross_model_mapped"]
CROSSED: dict[CrossedKey, str] = {"cross_model": "reindex_free", "cross_model_mapped": "mapped"}


class RankingMetric(NamedTuple):
    """A metric of a ranked test set.

    Attributes:
        name: key in ``results.json``; in the summary, keys have the prefix ``seen_`` or ``unseen_``.
        title: heading in tables.
        label: name in sentences.
        of: function from a :class:`lreid.retrieval.Evaluation` to a fraction in [0, 1].
        main: whether terminal and LaTeX tables and learning curves show the metric.
        depth: number of ranks of the CMC curve that the metric needs.
    """

    name: str
    title: str
    label: str
    of: Callable[[Any], float]
    main: bool = False
    depth: int = 1


def rank_metric(k: int, *, main: bool = False) -> RankingMetric:
    """Return the metric Rank-k: the share of queries with a match in the first ``k`` ranks."""
    return RankingMetric(f"rank{k}", f"R{k}", f"Rank-{k}", lambda ranked: ranked.cmc[k - 1], main, depth=k)


# All metrics that are computed after every task, averaged, saved, checked and shown; plug-ins append theirs.
METRICS = [
    RankingMetric("mAP", "mAP", "mAP", lambda ranked: ranked.mAP, main=True),
    RankingMetric("mINP", "mINP", "mINP", lambda ranked: ranked.mINP),
    rank_metric(1, main=True),
    rank_metric(5),
    rank_metric(10),
]
MAX_RANK = max(metric.depth for metric in METRICS)  # length of the CMC curve


PARTS: dict[str, Callable[[Any], Mapping[str, float]]] = {}  # metrics with a value for each part of a test set
_registered: dict[str, Callable[[Any], Any]] = {}


def register_metric(
    name: str, function: Callable[[Any], Any], *, title: str = "", main: bool = False, parts: bool = False
) -> None:
    """Add a metric of rankings to the results, tables, reports and loggers of this process.

    Args:
        name: key in ``results.json``.
        function: function of a :class:`lreid.retrieval.Evaluation`, which has the ranks of all matches, identities,
            cameras and the AP of every query. It returns a fraction in [0, 1]; or an array with a fraction per query
            ``(Q,)``, which lreid averages over the queries with a match.
        title: heading in tables; the default is the name.
        main: whether terminal and LaTeX tables and learning curves show the metric.
        parts: whether the function returns fractions by part of the test set, such as camera pairs. The report then
            shows the lowest one, and ``results.json`` has those of the latest model under ``parts``.

    Raises:
        ArgumentError: the name is that of another metric or of another key of ``results.json``.
    """
    own = name in {*key_forms(), *(metric.name for metric in METRICS if metric.name not in _registered)}
    registrar(_registered, name, "a metric or a key", own=own)(function)
    if parts:
        PARTS[name] = function
        return
    METRICS[:] = [metric for metric in METRICS if metric.name != name]
    METRICS.append(RankingMetric(name, title or name, title or name, function, main))


def figures_of(ranked: Any) -> dict[str, float]:
    """Return all :data:`METRICS` of a :class:`lreid.retrieval.Evaluation`, in per cent.

    Raises:
        InputError: the function of a registered metric does not return finite numbers, or not one per query.
    """
    return {metric.name: 100 * _mean(metric.name, metric.of(ranked), ranked.ap) for metric in METRICS}


def parts_of(ranked: Any) -> dict[str, dict[str, float]]:
    """Return the values of all metrics in :data:`PARTS` by part, in per cent; the errors are those of figures_of."""
    return {
        name: {part: round(100 * _mean(name, value, ranked.ap), 4) for part, value in function(ranked).items()}
        for name, function in PARTS.items()
    }


def _mean(name: str, value: Any, ap: np.ndarray) -> float:
    """Average the values of a metric over the queries with a match."""
    values = np.asarray(value)
    if values.ndim and values.shape != ap.shape:
        raise InputError(f"metric {name}: has the shape {values.shape} for {len(ap)} queries; return one per query")
    mean = np.mean(values[~np.isnan(ap)] if values.ndim else values) if values.dtype.kind in "bfiu" else np.nan
    if not np.isfinite(mean):
        raise InputError(f"metric {name}: returned {value!r:.80}; return finite numbers")
    return float(mean)


class GalleryEntry(TypedDict, total=False):
    """A test set; each matrix has a column for it. ``first_task`` is None if no task trains on its domain."""

    name: str
    kind: Kind
    first_task: int | None
    queries: int
    gallery: int
    valid_queries: int


class KeyForm(NamedTuple):
    """The required form of a key of ``results.json``, and its initial value.

    Attributes:
        form: form of the value, see :func:`lreid.utils.reading.misfit`; None allows any value: no report reads it.
        empty: function that creates the value before the first task, or None if the run sets it.
        needed: whether results without this key are refused.
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
    method: Annotated[str, KeyForm(str, needed=True)]
    benchmark: Annotated[str, KeyForm(str, needed=True)]
    # Fingerprint of the protocol; runs with different fingerprints must not be compared.
    protocol: Annotated[str, KeyForm(str)]
    # Fingerprints of the images of each task ("tasks") and each gallery ("galleries").
    content: Annotated[dict[str, list[str]], KeyForm({str: [str]})]
    seed: Annotated[int, KeyForm(int, needed=True)]
    # The config keys that distinguish runs.
    config: Annotated[dict[str, Any], KeyForm({})]
    # The command that repeats the run.
    command: Annotated[str, KeyForm(str)]
    # Config keys that the run changes, with their values in the files of method and benchmark.
    changed: Annotated[dict[str, Any], KeyForm({})]
    # Convention of average precision.
    ap: Annotated[str, KeyForm(str, needed=True)]
    tasks: Annotated[list[str], KeyForm([str], needed=True)]
    # Number of identities per task.
    task_identities: Annotated[list[int], KeyForm([int])]
    galleries: Annotated[list[GalleryEntry], KeyForm([GALLERY_FORM], needed=True)]
    mAP: list[list[float]]
    rank1: list[list[float]]
    # By gallery and metric: a triangular matrix. Row t has one value per model after tasks 0 to t: the metric of
    # queries by the model after task t in the gallery features of that model.
    cross_model: Annotated[Matrices, KeyForm({str: {str: [[REAL]]}}, dict)]
    # The same, but the gallery features are mapped from model to model up to that after task t.
    cross_model_mapped: Annotated[Matrices, KeyForm({str: {str: [[REAL]]}}, dict)]
    # By gallery: ids of the identities, their numbers of queries, and one row per task with their AP.
    identity_ap: Annotated[dict[str, dict[str, Any]], KeyForm({str: HISTORY_FORM}, dict)]
    # By metric and gallery: values of the latest model for parts of the gallery, such as pairs of cameras.
    parts: Annotated[dict[str, dict[str, dict[str, float]]], KeyForm({str: {str: {str: REAL}}}, dict)]
    # The model before the first task: by metric, one value per gallery; and by gallery, the AP of each identity.
    initial: Annotated[dict[str, list[float]], KeyForm({str: [REAL]}, dict)]
    initial_ap: Annotated[dict[str, list[float]], KeyForm({str: [REAL]}, dict)]
    # By gallery: names of identities by their ids as text; an id without an entry is its own name.
    identity_names: Annotated[dict[str, dict[str, str]], KeyForm({str: {str: str}})]
    summary: Annotated[dict[str, float | None], KeyForm({str: REAL_OR_NONE}, dict, needed=True)]
    # Classification: accuracy matrices of each classifier.
    accuracy: Annotated[Matrices, KeyForm({str: {"class": [[REAL]], "task": [[REAL]]}}, dict)]
    accuracy_summary: Annotated[dict[str, dict[str, Any]], KeyForm({str: ANYTIME_FORM}, dict)]
    # Within tasks: mean accuracy over the tasks so far, by number of images.
    accuracy_curve: Annotated[list[dict[str, Any]], KeyForm([POINT_FORM], list)]
    # Number of images of the stream so far, if there is an accuracy curve.
    images_seen: Annotated[int, KeyForm(None, int)]
    # Values that the method reports.
    method_figures: Annotated[dict[str, float], KeyForm(None, dict)]
    # One entry per task: by past task, the similarity of stored images to held-out images.
    alignment: Annotated[list[dict[str, float]], KeyForm([{str: REAL}], list)]
    seconds: Annotated[
        dict[str, float], KeyForm({str: REAL}, lambda: dict.fromkeys(("train", "train_cpu", "evaluate"), 0.0))
    ]
    images_per_second: Annotated[float, KeyForm(REAL)]
    peak_memory_mib: Annotated[int, KeyForm(REAL, int)]
    loss_history: Annotated[list[dict[str, float]], KeyForm([{"task": int, "epoch": int, str: REAL}], list)]
    # Feature drift of stored and of test images after task switches.
    drift: Annotated[list[dict[str, Any]], KeyForm([{"task": int, str: CURVES_FORM}], list)]
    # Norms of the loss gradient at features of stored and of incoming images after task switches.
    gradient_norms: Annotated[list[dict[str, Any]], KeyForm([{"task": int, str: [REAL_OR_NONE]}], list)]
    # By metric: a matrix of the networks before they were averaged at the end of tasks.
    unfused: Annotated[dict[str, list[list[float]]], KeyForm({str: [[REAL]]}, dict)]
    # Bytes stored between tasks: networks, per domain, per identity; "templates" is 1 if features of people are stored.
    stored: Annotated[dict[str, int], KeyForm({str: int}, dict)]
    exemplars: Annotated[int, KeyForm(int, int)]
    # Bytes of the exemplars' pixels or paths.
    exemplar_bytes: Annotated[int, KeyForm(None, int)]
    steps_trained: Annotated[int, KeyForm(int, int)]
    # Number of images in all training steps, see "Costs" in docs/reference/metrics.md.
    images_trained: Annotated[int, KeyForm(int, int)]
    skipped: list[str]
    skipped_images: Annotated[int, KeyForm(int)]
    # Versions of libraries in the last training process, and what decides its rounding (utils.devices.arithmetic).
    versions: Annotated[dict[str, str], KeyForm({str: str})]


def key_forms() -> dict[str, KeyForm]:
    """Return all keys of ``results.json`` that have a :class:`KeyForm` annotation, by name."""
    hints = get_type_hints(Results, include_extras=True)
    return {name: key for name, hint in hints.items() for key in getattr(hint, "__metadata__", ())}


def metric_names(results: Results) -> list[str]:
    """Return the names of the metrics in a run's results."""
    return [metric.name for metric in METRICS if metric.name in results]


def matrix(results: Results, metric: str) -> list[list[float]]:
    """Return the matrix of a metric, with one row per finished task and one column per gallery."""
    return results[metric]  # type: ignore[literal-required]


def averaged_kinds(results: Results) -> list[Kind]:
    """Return the kinds of test sets that are reported as a mean, because the run has several of the kind."""
    return [kind for kind in MEAN_KINDS if sum(gallery["kind"] == kind for gallery in results["galleries"]) > 1]


def is_trained(gallery: GalleryEntry, row: int) -> bool:
    """Whether a gallery's domain was trained in a task up to ``row``."""
    first = gallery["first_task"]
    return gallery["kind"] == "seen" and first is not None and first <= row


def columns_of(results: Results, row: int, kind: Kind) -> list[int]:
    """Return the columns of galleries of a kind; a seen gallery counts once a task up to ``row`` trained it."""
    return [
        column
        for column, gallery in enumerate(results["galleries"])
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == kind)
    ]


LARGEST_NUMBER = 1e100  # squares and sums of figures must stay finite


def results_form() -> dict[str, Any]:
    """Return the form of all keys that are read, in the notation of :func:`lreid.utils.reading.misfit`."""
    return {
        **{name + "?" * (not key.needed): key.form for name, key in key_forms().items() if key.form is not None},
        **{metric.name + "?" * (metric.name not in ("mAP", "rank1")): [[REAL]] for metric in METRICS},
    }


def start_results(**given: Any) -> Results:
    """Create the content before the first task.

    Args:
        given: all keys of :class:`Results` without an initial value, except ``schema`` and ``skipped_images``.
    """
    content: Any = {"schema": RESULTS_SCHEMA, **given} | {metric.name: [] for metric in METRICS}
    content |= {name: key.empty() for name, key in key_forms().items() if key.empty is not None}
    skipped = sorted(set(given["skipped"]))
    return content | {"skipped": skipped, "skipped_images": len(skipped)}


def resumed_results(fresh: Results, saved: Results, path: Path) -> Results:
    """Return the results of the checkpoint at ``path``, if its data are those of ``fresh`` results."""
    if saved.get("protocol", fresh["protocol"]) != fresh["protocol"]:
        changed = "images, identities or cameras differ"
    else:
        changed = _other_content(fresh, saved)
    if changed:
        raise InputError(f"{path}: {changed} from those at the run's start; restore these, or choose another --out")
    new = [metric.name for metric in METRICS if metric.name not in saved]  # registered after the start of the run
    return {key: value for key, value in (fresh | saved).items() if key not in new}  # type: ignore[return-value]


def _other_content(fresh: Results, saved: Results) -> str:
    """Name the first task or gallery whose images were replaced; finished tasks are not checked."""
    saved_prints, fresh_prints, done = saved.get("content", fresh["content"]), fresh["content"], len(saved["mAP"])
    for kind, names, first in (
        ("tasks", fresh["tasks"], done),
        ("galleries", [gallery["name"] for gallery in fresh["galleries"]], 0),
    ):
        for name, one, other in list(zip(names, saved_prints[kind], fresh_prints[kind], strict=False))[first:]:
            if one != other:
                return f"contents of the images of {name} differ"
    return ""


def write(path: Path, results: Results) -> None:
    """Write ``results.json`` atomically, as :func:`~lreid.utils.reading.escaped` text that :func:`read` restores."""
    write_text(path, json.dumps(escaped(results)) + "\n")


def read(run: str | Path) -> Results:
    """Read the results of a run from a run folder or a ``results.json``.

    Raises:
        InputError: the file does not exist, is damaged, or is not a results file of this schema.
    """
    path = Path(run) / "results.json" if Path(run).is_dir() else Path(run)
    try:
        results = read_json(path)
    except (OSError, ValueError) as error:
        raise_if_unreadable(error, path, advice="name the folder of a run that finished a task")
        raise InputError(f"{path}: cannot be read as JSON ({error}); --resume writes it again") from None
    if isinstance(results, dict):
        require_not_newer(path, results.get("schema"), RESULTS_SCHEMA, f"not a results file of schema {RESULTS_SCHEMA}")
    if not isinstance(results, dict) or results.get("schema") != RESULTS_SCHEMA:
        raise InputError(f"{path}: not a results file of schema {RESULTS_SCHEMA}; name the folder of a run")
    if reason := fault(results):
        raise InputError(f"{path}: {reason}; the file is damaged: continue with --resume to write it again")
    return results  # type: ignore[return-value]


def fault(results: Any) -> str | None:
    """Describe the first fault in the content of a ``results.json``; None if there is none."""
    if reason := misfit(results, results_form()) or _no_figure(results):
        return reason
    tasks, done = len(results["tasks"]), len(results["mAP"])
    if not tasks or done > tasks:
        return f"mAP has {done} rows, but tasks has {tasks}"
    for gallery in results["galleries"]:
        name, kind, first = gallery["name"], gallery["kind"], gallery["first_task"]
        if kind not in ("seen", "unseen", "merged"):
            return f"kind of gallery {name!r} is {kind!r}, not seen, unseen or merged"
        if ("queries" in gallery) != ("gallery" in gallery):
            return f"gallery {name!r} has one of queries and gallery, not both"
        if (first is None) == (kind == "seen") or not (first is None or 0 <= first < tasks):
            return f"first_task of gallery {name!r} is {first}, of {tasks} tasks"
    for name, rows, lengths in _matrices(results):
        if [len(row) for row in rows] != lengths:
            return f"{name} does not have rows with {lengths} values"
    for entry in results.get("loss_history", []):
        if not 0 <= entry["task"] < tasks or entry["epoch"] < 1:
            return f"loss_history has epoch {entry['epoch']} of task {entry['task']}, of {tasks} tasks"
    return None


def _matrices(results: Any) -> Iterator[tuple[str, list[list[float]], list[int]]]:
    """Yield all matrices with their names and the required lengths of their rows."""
    done, galleries = len(results["mAP"]), [gallery["name"] for gallery in results["galleries"]]
    all_galleries, all_models = [len(galleries)] * done, list(range(1, done + 1))
    for metric in metric_names(results):
        yield metric, results[metric], all_galleries
    for metric, rows in results.get("unfused", {}).items():
        yield f"unfused {metric}", rows, all_galleries
    for name, kinds in results.get("accuracy", {}).items():
        for kind, rows in kinds.items():
            yield f"accuracy {name} {kind}", rows, list(range(1, len(rows) + 1))
    for name, history in results.get("identity_ap", {}).items():
        yield f"identity_ap of {name!r}", history["ap"], [len(history["ids"])] * done
    for key, name, metric in product(CROSSED, galleries, metric_names(results)):
        if crossed := results.get(key):
            yield f"{key} of {name!r}: {metric}", crossed.get(name, {}).get(metric, []), all_models


def _no_figure(results: dict[str, Any]) -> str | None:
    """Describe the first number that is infinite, NaN or too large to compute with; None if there is none."""
    read_keys = {name.removesuffix("?") for name in results_form()}
    waiting = [(key, value) for key, value in results.items() if key in read_keys]
    while waiting:  # a loop, because a config may be nested too deeply for recursion
        key, value = waiting.pop()
        if isinstance(value, (int, float)) and not abs(value) < LARGEST_NUMBER:
            return f"{key} has a number that is not finite or beyond {LARGEST_NUMBER:g}"
        if isinstance(value, (dict, list)):
            waiting += [(key, each) for each in (value.values() if isinstance(value, dict) else value)]
    return None
