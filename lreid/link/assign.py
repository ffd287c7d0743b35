"""Assign identities to tracklets of a record: read their features from the gallery, then link them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lreid.errors import InputError, counted
from lreid.gallery.named_gallery import NamedGallery
from lreid.link.constraints import least_times
from lreid.link.folder import CROPS, enrolled_images
from lreid.link.offline import Rule, impostors, link
from lreid.link.online import OnlineLinker
from lreid.link.record import Json, Record
from lreid.link.tracklets import Tracklets, robust_mean
from lreid.utils.identities import UNKNOWN


@dataclass(frozen=True)
class Options:
    """Settings of linking.

    Attributes:
        rule: rule that decides which tracklets are linked.
        standardise: whether to standardise features: per recording or, if ``delay`` is given, per camera over all
            recordings so far.
        delay: None to link all tracklets at once. With a number, lreid links online; the number is the maximum time in
            seconds from the end of a tracklet to the decision about its identity.
    """

    rule: Rule = Rule()  # noqa: RUF009 (frozen)
    standardise: bool = True
    delay: float | None = None


def require_threshold(
    record: Record, new: Sequence[Json], old: Sequence[Json], named: NamedGallery | None, options: Options
) -> None:
    """Check that there is a threshold, or that new tracklets can calibrate one, before features are extracted.

    Raises:
        InputError: there is no threshold, and none can be calibrated.
    """
    if options.rule.threshold is not None:
        return
    if options.delay is None:
        place, least = _travel(record)

        def passages(rows: Sequence[Json]) -> Tracklets:
            cameras, starts, ends = ([row[name] for row in rows] for name in ("camera", "start", "end"))
            numbers = np.array([place[camera] for camera in cameras], dtype=np.int64)
            return Tracklets(numbers, np.array(starts), np.array(ends), np.zeros((len(rows), 0), np.float32))

        identities = np.array([row["identity"] for row in old])
        impostors(passages(new), options.rule.travel(passages(old), identities, least))
    elif record.content["threshold"] is None:
        raise InputError("--online has no data to calibrate on yet; link one day without it first, or pass --threshold")
    elif named and record.content["model"] not in (None, named.gallery.about.model):
        raise InputError(
            "--online has no threshold for the gallery's new model yet; link one day without it first, or pass "
            "--threshold"
        )


def assign(record: Record, named: NamedGallery, new: Sequence[Json], old: Sequence[Json], options: Options) -> None:
    """Assign identities to new tracklets, and record how similar each tracklet is to the others of its identity."""
    numbers = {record.name_of(each["identity"]): each["identity"] for each in old}
    numbers |= {name: int(number) for number, name in record.content["names"].items()}
    enrolled = enrolled_images(named)
    for _, name in enrolled:
        if name not in numbers:
            numbers[name] = record.new_identity()
            record.content["names"][str(numbers[name])] = name
    place, least = _travel(record)
    rows = [*old, *new]
    features, of_enrolled = _features(record, named, rows, [path for path, _ in enrolled], options, len(old))
    cameras = np.array([place[row["camera"]] for row in rows] + [len(place)] * len(enrolled))
    times = np.array([[row["start"], row["end"]] for row in rows] + [[-np.inf] * 2] * len(enrolled)).reshape(-1, 2)
    everything = Tracklets(cameras, times[:, 0], times[:, 1], np.concatenate([features, of_enrolled]))
    known_rows = np.r_[0 : len(old), len(rows) : len(everything)]
    earlier, fresh = everything[known_rows], everything[np.arange(len(old), len(rows))]
    numbered = [row["identity"] for row in old] + [numbers[name] for _, name in enrolled]
    order = sorted(set(numbered))
    identities = np.searchsorted(order, numbered).astype(np.int64)
    labels = _labels(record, fresh, earlier, identities, least, new, order, options)
    record.content["model"] = named.gallery.about.model
    sums = np.zeros((max([len(order), *(labels + 1).tolist()]), everything.features.shape[1]))
    np.add.at(sums, np.concatenate([identities, labels]), np.concatenate([earlier.features, fresh.features]))
    sizes = np.bincount(np.concatenate([identities, labels]), minlength=len(sums))
    created: dict[int, int] = {}
    for row, label, feature in zip(new, labels.tolist(), fresh.features, strict=True):
        others = int(sizes[label]) - 1
        score = float(sums[label] @ feature - feature @ feature) / others if others else None
        if label >= len(order) and label not in created:
            created[label] = record.new_identity()
        row["identity"] = created[label] if label >= len(order) else order[label]
        row["score"] = None if score is None else round(score, 4)
        row["why"] = f"{'new' if label >= len(order) else 'earlier'} identity, {counted(others, 'other tracklet')}"


def _travel(record: Record) -> tuple[dict[str, int], np.ndarray]:
    """Number the cameras, and return the user's travel times; all enrolled images count as one more camera."""
    place = {name: number for number, name in enumerate(dict.fromkeys(e["camera"] for e in record.content["clips"]))}
    times = [(place[a], place[b], seconds) for a, b, seconds in record.content["travel"] if {a, b} <= place.keys()]
    return place, least_times(len(place) + 1, times)


def _labels(
    record: Record,
    fresh: Tracklets,
    earlier: Tracklets,
    identities: np.ndarray,
    least: np.ndarray,
    rows: Sequence[Json],
    order: Sequence[int],
    options: Options,
) -> np.ndarray:
    """Link new tracklets, all at once or online; return their labels, and record the threshold."""
    if options.delay is None:
        index = {row["key"]: number for number, row in enumerate(rows)}
        must = [[index[key] for key in group if key in index] for group in record.content["same"]]
        cannot = [(index[a], index[b]) for a, b in record.content["apart"] if a in index and b in index]
        # In a relink, the tracklets still have the numbers of the enrolled people from whom the user separated others.
        both = [*cannot, *((b, a) for a, b in cannot)]
        strangers = [(b, order.index(number)) for a, b in both if (number := rows[a]["identity"]) in order]
        links = link(
            fresh,
            least,
            options.rule,
            earlier=earlier,
            identities=identities,
            must=must,
            cannot=cannot,
            strangers=strangers,
        )
        record.content["threshold"] = links.threshold
        return links.labels
    threshold = record.content["threshold"] if options.rule.threshold is None else options.rule.threshold
    record.content["threshold"] = threshold
    linker = OnlineLinker(options.rule.travel(earlier, identities, least), threshold, earlier, identities)
    labels = np.zeros(len(fresh), np.int64)
    step = np.floor(fresh.ends / options.delay) if options.delay > 0 else fresh.ends
    for each in np.unique(step):
        labels[step == each] = linker.add(fresh[np.flatnonzero(step == each)])
    return labels


def _features(
    record: Record, named: NamedGallery, rows: Sequence[Json], enrolled: Sequence[str], options: Options, earlier: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return unit features (N, D) of tracklets and (E, D) of enrolled images, standardised if requested."""
    labels = named.gallery.labels()
    vectors = named.gallery.features(labels.keys)
    index = {path: number for number, path in enumerate(labels.paths)}
    crops = [
        [index[path] for name in row["crops"] if (path := f"{CROPS}/{row['key']}/{name}") in index] for row in rows
    ]
    lacking = next((row["key"] for row, of in zip(rows, crops, strict=True) if not of), None)
    if lacking is not None:
        raise InputError(f"{named.where}: lacks the crops of {lacking}; remove that identity, or restore the gallery")
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
