"""Measure ``lreid link`` on rendered walks, vehicles and random features; print docs/results/link.csv.

    python tools/link_walks.py walks
    python tools/link_walks.py far --shrink walks
    lreid link add linked far/day-1.yaml --checkpoint zoo:people     # then far/day-2.yaml
    python docs/results/link.py far linked VEHICLES

VEHICLES is a folder with ``index.csv`` (path, pid, camid, split). IDF1, HOTA and AssA are TrackEval's metrics
(``pip install --no-deps trackeval``), over the boxes of all recordings as one sequence.
"""

import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from trackeval.metrics import HOTA, Identity

from lreid.data.images import Images
from lreid.data.records import Record as Listed
from lreid.gallery import Gallery
from lreid.link import constraints
from lreid.link.constraints import OVERLAPPING, learn_travel, least_times
from lreid.link.offline import link
from lreid.link.online import OnlineLinker
from lreid.link.record import LinkRecord
from lreid.link.tracklets import Tracklets, robust_mean
from lreid.loading import load_model
from lreid.retrieval.camera_norm import CameraNorm
from lreid.zoo import find

OUT = csv.writer(sys.stdout, lineterminator="\n")
HEADS = (
    "data",
    "tracklets",
    "linking",
    "threshold",
    "IDF1",
    "IDP",
    "IDR",
    "HOTA",
    "AssA",
    "identities",
    "ms per tracklet",
)
GRID = np.arange(0.2, 0.96, 0.01)


class Truth(NamedTuple):
    """The frame (counted over all recordings) and the tracklet of each box, and the person of each tracklet."""

    frames: np.ndarray
    tracklets: np.ndarray
    people: np.ndarray


def metrics(truth: Truth, labels: np.ndarray, *classes: type) -> dict[str, float]:
    """Mean values of TrackEval's metrics; the detected boxes are the true boxes."""
    people, found = (np.unique(each, return_inverse=True)[1] for each in (truth.people, labels))
    boxes = [truth.tracklets[truth.frames == frame] for frame in np.unique(truth.frames)]
    data = {"num_gt_ids": people.max() + 1, "num_tracker_ids": found.max() + 1, "num_timesteps": len(boxes)}
    data |= {"num_gt_dets": len(truth.frames), "num_tracker_dets": len(truth.frames)}
    data |= {"gt_ids": [people[each] for each in boxes], "tracker_ids": [found[each] for each in boxes]}
    data["similarity_scores"] = [np.eye(len(each)) for each in boxes]
    found = [each({"PRINT_CONFIG": False}) for each in classes]
    return {name: np.mean(value) for each in found for name, value in each.eval_sequence(data).items()}


def write(data: str, truth: Truth, linking: str, threshold: float, labels: np.ndarray) -> None:
    """Print one line of the CSV list."""
    found = metrics(truth, labels, Identity, HOTA)
    figures = [f"{100 * found[name]:.1f}" for name in HEADS[4:9]]
    OUT.writerow([data, len(labels), linking, f"{threshold:.2f}", *figures, len(np.unique(labels)), ""])
    sys.stdout.flush()


def best(truth: Truth, linker: Callable[[float], np.ndarray]) -> tuple[float, np.ndarray]:
    """Find the threshold with the highest IDF1, which needs the ground truth; return it with its labels."""
    tried = [(metrics(truth, labels := linker(t), Identity)["IDF1"], -t, labels) for t in GRID.tolist()]
    _, threshold, labels = max(tried, key=lambda each: each[:2])
    return -threshold, labels


def nearest(tracklets: Tracklets, threshold: float) -> np.ndarray:
    """Link by the baseline: each tracklet gets the identity of the most similar earlier tracklet."""
    labels, similarity = np.arange(len(tracklets)), tracklets.features @ tracklets.features.T
    order = np.lexsort((tracklets.ends, tracklets.starts))
    for place in range(1, len(order)):
        here, before = order[place], order[:place]
        near = before[similarity[here, before].argmax()]
        if similarity[here, near] >= threshold:
            labels[here] = labels[near]
    return labels


def read(folder: Path, *, standardise: bool = True, robust: bool = True, past: int = 0) -> Tracklets:
    """Read the tracklets of a folder of ``lreid link``, as the command computes them or without one part.

    If ``past`` is above 0, the first ``past`` tracklets give the camera statistics that standardise features, as with
    ``--online``. If ``past`` is 0, lreid standardises the features of each recording separately.
    """
    record, gallery = LinkRecord.read(folder), Gallery.load(folder / "people.gallery")
    stored = gallery.labels()
    vectors, index = gallery.features(stored.keys), {path: row for row, path in enumerate(stored.paths)}
    rows = [[index[f"tracklets/{each['key']}/{crop}"] for crop in each["crops"]] for each in record.tracklets]
    if standardise:
        names = [each["camera"] if past else each["key"].rpartition("/")[0] for each in record.tracklets]
        of, seen = np.zeros(len(vectors), np.int64), np.concatenate(rows[: past or None])
        for number, here in zip(np.unique(names, return_inverse=True)[1], rows, strict=True):
            of[here] = number
        vectors = CameraNorm.estimate(vectors[seen], of[seen])(vectors, of)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if robust:
        of_crops = [np.array([*each["crops"].values()]) for each in record.tracklets]
        means = [robust_mean(vectors[here], quality) for here, quality in zip(rows, of_crops, strict=True)]
    else:
        means = [(mean := vectors[here].mean(0)) / np.linalg.norm(mean) for here in rows]
    cameras = np.unique([each["camera"] for each in record.tracklets], return_inverse=True)[1]
    starts, ends = (np.array([each[name] for each in record.tracklets]) for name in ("start", "end"))
    return Tracklets(cameras, starts, ends, np.stack(means).astype(np.float32))


def read_truth(walks: Path, record: LinkRecord) -> Truth:
    """Read the ground truth of the tracklets in a folder, which must contain every track of the walks."""
    who = json.loads((walks / "truth.json").read_text())
    stems = {clip["name"]: Path(clip["video"]).stem for clip in record.content["clips"]}
    numbers = {each["key"]: number for number, each in enumerate(record.tracklets)}
    assert len(numbers) == sum(len(who[stem]) for stem in stems.values())
    frames, tracklets, people = [], [], np.zeros(len(numbers), np.int64)
    for place, (clip, stem) in enumerate(stems.items()):
        for line in (walks / f"{stem}.txt").read_text().splitlines():
            frame, track = line.split(",")[:2]
            frames.append(place * 10**6 + int(frame))
            tracklets.append(numbers[f"{clip}/{track}"])
            people[tracklets[-1]] = who[stem][track]
    return Truth(np.array(frames), np.array(tracklets), people)


def measure_walks(walks: Path, folder: Path) -> None:
    """Measure the command, the baseline, and offline linking without single parts."""
    record = LinkRecord.read(folder)
    truth, least = read_truth(walks, record), least_times(6)

    def line(linking: str, threshold: float, labels: np.ndarray) -> None:
        write("walks from afar", truth, linking, threshold, labels)

    whole, raw = read(folder), read(folder, standardise=False)
    free = np.where(np.isfinite(least), OVERLAPPING, least)
    days = int((whole.starts < whole.starts.min() + 43_200).sum())  # tracklets of the first day
    first, first_threshold = link(whole[:days], least)
    second, threshold = link(whole[days:], least, earlier=whole[:days], identities=first)
    line("day by day", threshold, np.concatenate([first, second]))
    later, learnt = read(folder, past=days)[days:], learn_travel(whole[:days], first, least)
    linker = OnlineLinker(learnt, first_threshold, whole[:days], first, len(later))
    labels = linker.add_in_steps(later, 10)
    line("the second day online, 10 s delay", first_threshold, np.concatenate([first, labels]))
    full, threshold = link(whole, least)
    line("all at once", threshold, full)
    plain = read(folder, standardise=False, robust=False)
    line(
        "baseline: nearest tracklet, mean of the crops, not standardised, best threshold",
        *best(truth, lambda t: nearest(plain, t)),
    )
    line("baseline with the features of lreid link, best threshold", *best(truth, lambda t: nearest(whole, t)))
    line("baseline with the features and threshold of lreid link", threshold, nearest(whole, threshold))
    for name, parts in (("mean of the crops", read(folder, robust=False)), ("features not standardised", raw)):
        labels, of_parts = link(parts, least)
        line(f"all at once, {name}", of_parts, labels)
    trips, constraints.MIN_TRIPS = constraints.MIN_TRIPS, sys.maxsize  # no travel times are learned
    for name, times in (("no travel times", least), ("no constraint of time", free)):
        line(f"all at once, {name}", threshold, link(whole, times, threshold)[0])
    constraints.MIN_TRIPS = trips
    card = find("people").verification["threshold"]
    line("all at once, not standardised, threshold of the model card", card, link(raw, least, card)[0])
    line("all at once, best threshold", *best(truth, lambda t: link(whole, least, t)[0]))
    line("all at once, not standardised, best threshold", *best(truth, lambda t: link(raw, least, t)[0]))


def measure_vehicles(folder: Path) -> None:
    """Link vehicles that pass camera 0 (one every two seconds) and, a minute later, camera 1 for 20 seconds."""
    listed = csv.DictReader((folder / "index.csv").open(encoding="utf-8"))
    rows = [row for row in listed if row["split"] in ("query", "gallery")]
    vehicles = np.unique([row["pid"] for row in rows], return_inverse=True)[1]
    count, least = vehicles.max() + 1, least_times(2)
    cameras = np.array([int(row["camid"]) for row in rows])
    starts = 2.0 * np.random.default_rng(0).permutation(count)[vehicles] + 60 * cameras
    model = load_model("zoo:vehicles", "cpu")
    images = [Listed(str(folder / row["path"]), -1, -1) for row in rows]
    vectors = model.extract(Images(images, height=model.height, width=model.width), flip=True)
    vectors = CameraNorm.estimate(vectors, cameras)(vectors, cameras)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    tracklets, numbers = Tracklets(cameras, starts, starts + 20, vectors), np.arange(len(rows))
    truth, (labels, threshold) = Truth(numbers, numbers, vehicles), link(tracklets, least)
    data = f"{count} vehicles, zoo:vehicles"
    write(data, truth, "all at once", threshold, labels)
    write(data, truth, "all at once, best threshold", *best(truth, lambda t: link(tracklets, least, t)[0]))
    write(data, truth, "baseline, best threshold", *best(truth, lambda t: nearest(tracklets, t)))


def measure_time() -> None:
    """Measure the time to link random features of people on one thread, without feature extraction."""
    for people, count, online in ((1_000, 10_000, 0), (10_000, 100_000, 200), (100_000, 100_000, 200)):
        dice, total = np.random.default_rng(0), count + online
        middles = dice.standard_normal((people, 1280), dtype=np.float32)
        truth = np.r_[dice.permutation(count) % people, dice.integers(people, size=online)]
        features = middles[truth] + 0.7 * dice.standard_normal((total, 1280), dtype=np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        starts, cameras = np.sort(dice.uniform(0, 6 * total, total)), dice.integers(6, size=total)
        tracklets, least = Tracklets(cameras, starts, starts + dice.uniform(5, 12, total), features), least_times(6)
        if online:
            linker = OnlineLinker(least, 0.4, tracklets[:count], truth[:count], online)
            begun = time.process_time()
            for number in range(count, total):
                linker.add(tracklets[number : number + 1])
            name, threshold, each = "online, one at a time", 0.4, (time.process_time() - begun) / online
        else:
            begun = time.process_time()
            name, threshold = "all at once", link(tracklets, least)[1]
            each = (time.process_time() - begun) / count
        data = f"random features, {people:,} people"
        OUT.writerow([data, count, name, f"{threshold:.2f}", *[""] * 6, f"{1000 * each:.1f}"])


if __name__ == "__main__":
    walks, linked, vehicles = map(Path, sys.argv[1:])
    OUT.writerow(HEADS)
    measure_walks(walks, linked)
    measure_vehicles(vehicles)
    measure_time()
