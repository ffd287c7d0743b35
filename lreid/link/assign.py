"""Assign identities to tracklets of a record: read their features from the gallery, then link them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lreid.errors import InputError, counted
from lreid.gallery import Gallery
from lreid.link.constraints import learn_travel, least_times
from lreid.link.folder import CROPS, enrolled_images
from lreid.link.offline import impostors, link
from lreid.link.online import OnlineLinker
from lreid.link.record import Json, LinkRecord
from lreid.link.tracklets import Tracklets, robust_mean
from lreid.utils.identities import UNKNOWN


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


def require_threshold(
    record: LinkRecord, new: Sequence[Json], old: Sequence[Json], gallery: Gallery | None, options: LinkOptions
) -> None:
    """Check that there is a threshold, or that new tracklets can calibrate one, before features are extracted.

    Raises:
        InputError: there is no threshold, and none can be calibrated.
    """
    if options.threshold is not None:
        return
    if options.delay is None:
        place, least = _travel(record)
        unknown = np.zeros((len(old) + len(new), 0), np.float32)  # times are enough to find impostors
        earlier, fresh = _tracklets(old, place, unknown[: len(old)]), _tracklets(new, place, unknown[len(old) :])
        identities = np.array([row["identity"] for row in old])
        impostors(fresh, learn_travel(earlier, identities, least))
    elif record.content["threshold"] is None or (gallery and record.content["model"] != gallery.about.model):
        raise InputError(
            "--online has no threshold for the gallery's model yet; link one day without it first, or pass --threshold"
        )


def assign(
    record: LinkRecord, gallery: Gallery, new: Sequence[Json], old: Sequence[Json], options: LinkOptions
) -> None:
    """Assign identities to new tracklets, and record how similar each tracklet is to the others of its identity."""
    numbers = {record.name_of(each["identity"]): each["identity"] for each in old}
    numbers |= {name: int(number) for number, name in record.content["names"].items()}
    enrolled = enrolled_images(gallery)
    for _, name in enrolled:
        if name not in numbers:
            numbers[name] = record.new_identity()
            record.content["names"][str(numbers[name])] = name
    place, least = _travel(record)
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
        threshold = record.content["threshold"] if options.threshold is None else options.threshold
        linker = OnlineLinker(learn_travel(earlier, identities, least), threshold, earlier, identities, len(fresh))
        labels = linker.add_in_steps(fresh, options.delay)
    record.content["threshold"] = threshold
    record.content["model"] = gallery.about.model
    _write(record, new, order, np.concatenate([identities, labels]), earlier.followed_by(fresh).features)


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
