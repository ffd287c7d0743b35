"""Assign identities to tracklets of a record: read their features from the gallery, then link them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lreid.errors import InputError, counted, rounded_up
from lreid.gallery import Gallery
from lreid.link.constraints import learn_travel, least_times
from lreid.link.folder import CROPS, enrolled_images
from lreid.link.offline import MIN_IMPOSTORS, impostors, link
from lreid.link.online import OnlineLinker
from lreid.link.record import RECORD_FILE, Json, LinkRecord
from lreid.link.tracklets import Tracklets, robust_mean
from lreid.utils.identities import UNKNOWN

logger = logging.getLogger("lreid")

QUANTILE = 1.645  # of the standard normal distribution, for an upper limit with a confidence of 95 %


@dataclass(frozen=True)
class LinkOptions:
    """Settings of linking.

    Attributes:
        threshold: minimum mean cosine similarity of linked tracklets; None to calibrate it on impostor pairs.
        false_accept_rate: share of impostor pairs that may reach a calibrated threshold, in [0, 1).
        standardise: whether to standardise features: per recording or, if ``delay`` is given, per camera over all
            recordings so far.
        delay: None to link all tracklets at once. With a number, lreid links online; the number is the maximum time in
            seconds from the end of a tracklet to the decision about its identity.
    """

    threshold: float | None = None
    false_accept_rate: float = 0.002
    standardise: bool = True
    delay: float | None = None


def stored_threshold(
    record: LinkRecord, model: str, source: str, options: LinkOptions
) -> tuple[LinkOptions | None, str]:
    """Return the options with the threshold that needs no calibration, and the place where this threshold is stored.

    The place is ``identities.json`` if its threshold is valid for the model, otherwise the model's card. The threshold
    of a card is valid for features that are not standardised. The options are None if neither has a threshold.

    Args:
        model, source: fingerprint of the model, and its name for :func:`lreid.load_model`.
    """
    content = record.content
    if content["threshold"] is not None and content["model"] == model and (options.standardise or content["raw"]):
        return replace(options, threshold=content["threshold"], standardise=not content["raw"]), RECORD_FILE
    from lreid.gallery.comparison import threshold_of_model  # loads torch

    threshold = threshold_of_model(source)["threshold"]
    return threshold and replace(options, threshold=threshold, standardise=False), f"the card of {source}"


def assign(
    record: LinkRecord, gallery: Gallery, new: Sequence[Json], old: Sequence[Json], options: LinkOptions
) -> None:
    """Assign identities to new tracklets, and record how similar each tracklet is to the others of its identity.

    Without a threshold, and without enough impostor pairs to calibrate one, lreid takes a stored threshold and logs its
    error rate. If none is stored, every tracklet becomes an identity of its own, so that the extraction is not lost.
    """
    numbers = {record.name_of(each["identity"]): each["identity"] for each in old}
    numbers |= {name: int(number) for number, name in record.content["names"].items()}
    enrolled = enrolled_images(gallery)
    for _, name in enrolled:
        if name not in numbers:
            numbers[name] = record.new_identity()
            record.content["names"][str(numbers[name])] = name
    place, least = _travel(record)
    old_ones, new_ones = (_tracklets(rows, place, np.zeros((len(rows), 0), np.float32)) for rows in (old, new))
    learned = learn_travel(old_ones, np.array([row["identity"] for row in old]), least)  # from times alone
    stored = ""
    if options.threshold is None and (options.delay is not None or len(impostors(new_ones, learned)) < MIN_IMPOSTORS):
        of_model = gallery.about.model, gallery.extraction.checkpoint
        with_threshold, stored = stored_threshold(record, *of_model, options)
        options = with_threshold or replace(options, threshold=np.inf)
    features, of_enrolled = _features(record, gallery, [*old, *new], [path for path, _ in enrolled], options, len(old))
    never = np.full(len(enrolled), -np.inf)  # the camera of enrolled images sees nobody, so times rule nothing out
    images = Tracklets(np.full(len(enrolled), len(place)), never, never, of_enrolled)
    earlier = _tracklets(old, place, features[: len(old)]).followed_by(images)
    fresh = _tracklets(new, place, features[len(old) :])
    numbered = [row["identity"] for row in old] + [numbers[name] for _, name in enrolled]
    order = sorted(set(numbered))
    identities = np.searchsorted(order, numbered).astype(np.int64)
    if options.delay is None:
        corrections = _corrections(record, new, order)
        labels, threshold = link(
            fresh, least, options.threshold, options.false_accept_rate, earlier, identities, **corrections
        )
    else:
        assert options.threshold is not None  # stored_threshold has found one
        threshold, travel = options.threshold, learn_travel(earlier, identities, least)
        labels = OnlineLinker(travel, threshold, earlier, identities, len(fresh)).add_in_steps(fresh, options.delay)
    scores = impostors(fresh, learned)
    _report(threshold, stored, len(scores), int((scores >= threshold).sum()))
    record.content |= {"threshold": threshold if np.isfinite(threshold) else None, "model": gallery.about.model}
    record.content["raw"] = not options.standardise
    _write(record, new, order, np.concatenate([identities, labels]), earlier.followed_by(fresh).features)


def _report(threshold: float, stored: str, pairs: int, reached: int) -> None:
    """Log the threshold, where it is stored ("" if it is new), and how many impostor pairs reach it."""
    if not np.isfinite(threshold):
        logger.warning(
            "not linked: the model has no threshold, and %s of different people are too few to calibrate one (%d are "
            "needed); every tracklet is an identity of its own, so run lreid link relink with --threshold",
            *(counted(pairs, "pair"), MIN_IMPOSTORS),
        )
        return
    rate = "no pair of tracklets shows two people for certain, so its false accept rate here is unknown"
    if pairs:
        rate = f"{reached} of {counted(pairs, 'pair')} of different people reach it: its false accept rate is at most "
        rate += f"{100 * upper_limit(reached, pairs):.1f} % (confidence 95 %)"
    source = f" from {stored}" if stored else ""
    advice = "; check the page, and correct it with lreid link relink --threshold" if stored else ""
    level = logging.WARNING if stored else logging.INFO
    logger.log(level, "threshold %s%s: %s%s", rounded_up(threshold), source, rate, advice)


def upper_limit(successes: int, trials: int) -> float:
    """Compute Wilson's upper limit of a rate in [0, 1], with a confidence of 95 %."""
    share, weight = successes / trials, QUANTILE**2 / trials
    root = np.sqrt(share * (1 - share) * weight + weight**2 / 4)
    return float((share + weight / 2 + root) / (1 + weight))


def _write(
    record: LinkRecord, new: Sequence[Json], order: Sequence[int], labels: np.ndarray, features: np.ndarray
) -> None:
    """Write identities into the rows of new tracklets, the last ones of all labels (N,) and features (N, D)."""
    sums, sizes = np.zeros((max(len(order), labels.max() + 1), features.shape[1])), np.bincount(labels)
    np.add.at(sums, labels, features)
    created: dict[int, int] = {}
    for row, label, feature in zip(new, labels[-len(new) :].tolist(), features[-len(new) :], strict=True):
        others = int(sizes[label]) - 1
        score = float(sums[label] @ feature - feature @ feature) / others if others else None
        if label >= len(order) and label not in created:
            created[label] = record.new_identity()
        row["identity"] = created[label] if label >= len(order) else order[label]
        row["score"] = None if score is None else round(score, 4)
        row["why"] = f"{'new' if label >= len(order) else 'earlier'} identity, {counted(others, 'other tracklet')}"


def _travel(record: LinkRecord) -> tuple[dict[str, int], np.ndarray]:
    """Number the cameras, and return the user's travel times; all enrolled images count as one more camera."""
    place = {name: number for number, name in enumerate(dict.fromkeys(e["camera"] for e in record.content["clips"]))}
    times = [(place[a], place[b], seconds) for a, b, seconds in record.content["travel"] if {a, b} <= place.keys()]
    return place, least_times(len(place) + 1, times)


def _tracklets(rows: Sequence[Json], place: dict[str, int], features: np.ndarray) -> Tracklets:
    cameras = np.array([place[row["camera"]] for row in rows], dtype=np.int64)
    starts, ends = (np.array([row[name] for row in rows], dtype=np.float64) for name in ("start", "end"))
    return Tracklets(cameras, starts, ends, features)


def _corrections(record: LinkRecord, rows: Sequence[Json], order: Sequence[int]) -> dict[str, Any]:
    """Return the user's corrections as arguments of :func:`lreid.link.offline.link`."""
    index = {row["key"]: number for number, row in enumerate(rows)}
    must = [[index[key] for key in group if key in index] for group in record.content["same"]]
    cannot = [(index[a], index[b]) for a, b in record.content["apart"] if a in index and b in index]
    # In a relink, the tracklets still have the numbers of the enrolled people from whom the user separated others.
    both = [*cannot, *((b, a) for a, b in cannot)]
    strangers = [(b, order.index(number)) for a, b in both if (number := rows[a]["identity"]) in order]
    return {"must": must, "cannot": cannot, "strangers": strangers}


def _features(
    record: LinkRecord,
    gallery: Gallery,
    rows: Sequence[Json],
    enrolled: Sequence[str],
    options: LinkOptions,
    earlier: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return unit features (N, D) of tracklets and (E, D) of enrolled images, standardised if requested."""
    labels = gallery.labels()
    vectors = gallery.features(labels.keys)
    index = {path: number for number, path in enumerate(labels.paths)}
    crops = [
        [index[path] for name in row["crops"] if (path := f"{CROPS}/{row['key']}/{name}") in index] for row in rows
    ]
    lacking = next((row["key"] for row, of in zip(rows, crops, strict=True) if not of), None)
    if lacking is not None:
        raise InputError(f"{gallery.where}: lacks the crops of {lacking}; remove that identity, or restore the gallery")
    if options.standardise:
        from lreid.retrieval.camera_norm import CameraNorm

        online = options.delay is not None and earlier > 0
        source = {each["name"]: each["camera"] if online else each["name"] for each in record.content["clips"]}
        numbers = {name: number for number, name in enumerate(dict.fromkeys(source.values()))}
        of_image = np.full(len(vectors), UNKNOWN)
        for row, of in zip(rows, crops, strict=True):
            of_image[of] = numbers[source[row["key"].rpartition("/")[0]]]
        past = np.concatenate(crops[:earlier] if online else crops).astype(np.int64)
        vectors = CameraNorm.estimate(vectors[past], of_image[past])(vectors, of_image)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    means = [
        robust_mean(vectors[of], np.array([row["crops"][labels.paths[each].rpartition("/")[2]] for each in of]))
        for row, of in zip(rows, crops, strict=True)
    ]
    return np.stack(means), vectors[[index[path] for path in enrolled]]
