"""MEVID: its archives, its reader, its protocol and tasks on which people return, on a made tree."""

import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from plain_benchmark import plain

from lreid.build import evaluator_of
from lreid.config import load_config
from lreid.data.datasets import mevid, spec_of
from lreid.data.prepare import prepare
from lreid.data.records import Benchmark, QueryGallery
from lreid.data.tasks import query_gallery
from lreid.errors import ArgumentError, InputError
from lreid.evaluation import Evaluator, Rules, load_tests
from lreid.models import Embedder

# Person, outfit, camera and number of frames of each tracklet; -1 is junk, and one tracklet is empty.
TRAIN = [(1, 1, 329, 3), (1, 2, 331, 5), (2, 1, 331, 2), (2, 1, 436, 1), (3, 7, 329, 2)]
TEST = [
    *[(201, outfit, camera, 2) for outfit in (1, 3) for camera in (329, 330, 331)],
    (-1, 0, 329, 2), (202, 1, 330, 3), (202, 1, 331, 1), (202, 2, 329, 0), (202, 2, 329, 4), (203, 1, 330, 2),
]  # fmt: skip
QUERIES = [0, 4, 7, 10]


def names_of(tracklet: int, pid: int, outfit: int, camid: int, frames: int) -> list[str]:
    return [f"{max(pid, 0):04d}O{outfit:03d}C{camid}T{tracklet:03d}F{frame:05d}.jpg" for frame in range(frames)]


def jpeg(name: str) -> bytes:
    file, rng = io.BytesIO(), np.random.default_rng(int("".join(filter(str.isdigit, name))))
    Image.fromarray(rng.integers(0, 255, (32, 16, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue() + rng.bytes(60_000)  # so that an archive that is cut short still holds some


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three archives, in the folder of the data set."""
    home = tmp_path_factory.mktemp("archives") / "mevid"
    home.mkdir()
    with zipfile.ZipFile(home / "mevid-v1-annotation-data.zip", "w") as texts:
        for split, tracklets in (("train", TRAIN), ("test", TEST)):
            names, rows = [], []
            for number, tracklet in enumerate(tracklets):
                start = len(names)
                names += names_of(number, *tracklet)
                rows.append(" ".join(f"{value:.6e}" for value in (start, len(names) - 1, *tracklet[:3])))
            texts.writestr(f"mevid-v1-annotation-data/{split}_name.txt", "\n".join(names))
            texts.writestr(f"mevid-v1-annotation-data/track_{split}_info.txt", "\n".join(rows) + "\n")
            with tarfile.open(home / f"mevid-v1-bbox-{split}.tgz", "w:gz") as images:
                for name in names:
                    info, content = tarfile.TarInfo(f"bbox_{split}/{name[:4]}/{name}"), jpeg(name)
                    info.size = len(content)
                    images.addfile(info, io.BytesIO(content))
        texts.writestr("mevid-v1-annotation-data/query_IDX.txt", "".join(f"{query}.0\n" for query in QUERIES))
    return home


@pytest.fixture(scope="module")
def root(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set with all frames."""
    root = tmp_path_factory.mktemp("datasets")
    prepare("mevid", root, sorted(archives.iterdir()), frames=9)
    return root


@pytest.fixture
def home(root: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the text files, for faults, with the images of the data set."""
    home = tmp_path / "mevid"
    home.mkdir()
    for entry in (root / "mevid").iterdir():
        if entry.is_dir():
            (home / entry.name).symlink_to(entry)
        else:
            (home / entry.name).write_bytes(entry.read_bytes())
    return home


def test_frames_have_person_camera_outfit_and_tracklet(root: Path) -> None:
    data_set = spec_of("mevid").load(root)
    frames = [(each.pid, each.camid, each.outfit, each.tracklet) for each in data_set.train]
    wanted = [(p, c, o, number) for number, (p, o, c, frames) in enumerate(TRAIN) for _ in range(frames)]
    assert frames == wanted
    for records, chosen in ((data_set.query, True), (data_set.gallery, False)):
        assert {each.tracklet for each in records} == {
            number
            for number, (pid, *_, frames) in enumerate(TEST)
            if frames and pid > 0 and (number in QUERIES) == chosen
        }
    frame = data_set.query[0]
    path, pid, camid = frame  # as code from before there were tracklets unpacks it
    assert (pid, camid) == (201, 329) and Path(path).parts[-3:-1] == ("bbox_test", "0201")
    for other in (pickle.loads(pickle.dumps(frame)), frame._replace(pid=5)._replace(pid=201)):
        assert (other, other.outfit, other.tracklet) == (frame, 1, 0)
    assert query_gallery([data_set], "seen").sizes == (len(QUERIES), 6)


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("track_test_info.txt", 1, "1e15"), ("track_test_info.txt", 0, "1e300"), ("track_test_info.txt", 3, "1.5"),
        ("track_train_info.txt", 1, "nan"), ("query_IDX.txt", 0, "-1"), ("query_IDX.txt", 0, "13"),
    ],
)  # fmt: skip
def test_numbers_that_no_list_can_have_are_refused(home: Path, file: str, place: int, value: str) -> None:
    words = (home / file).read_text().split(" " if "track" in file else "\n")
    words[place] = value
    (home / file).write_text((" " if "track" in file else "\n").join(words))
    with pytest.raises(InputError, match=file):
        spec_of("mevid").load(home.parent)


def official(features: dict[str, np.ndarray], outfits: str) -> tuple[float, float]:
    """mAP and Rank-1 in per cent, by the rules of the authors' code, as loops."""
    means = {
        number: np.mean([features[name] for name in names_of(number, *tracklet)], axis=0, dtype=np.float64)
        for number, tracklet in enumerate(TEST)
        if tracklet[3] and tracklet[0] > 0
    }
    precisions, first = [], []
    for query in QUERIES:
        pid, outfit, camid, _ = TEST[query]
        ranking = []
        for number, mean in means.items():
            theirs, clothes, camera, _ = TEST[number]
            if number in QUERIES:
                continue
            same = theirs == pid
            left_out = {"both": False, "changed": clothes == outfit, "same": clothes != outfit}[outfits]
            if not (same and (camera == camid or left_out)):
                cosine = mean @ means[query] / np.linalg.norm(mean) / np.linalg.norm(means[query])
                ranking.append((-cosine, same))
        hits = [same for _, same in sorted(ranking)]
        if any(hits):
            ranks = np.flatnonzero(hits)
            precisions.append(np.mean([(i + 1) / (rank + 1) for i, rank in enumerate(ranks)]))
            first.append(hits[0])
    return 100 * float(np.mean(precisions)), 100 * float(np.mean(first))


@pytest.fixture(scope="module")
def model() -> Embedder:
    torch.manual_seed(0)
    return Embedder("small", height=32, width=16)


@pytest.mark.parametrize("outfits", ["both", "same", "changed"])
def test_figures_are_those_of_the_authors_loops(root: Path, model: Embedder, outfits: str) -> None:
    test = query_gallery([spec_of("mevid").load(root)], "seen")
    evaluator = Evaluator(load_tests([test], Rules(outfits=outfits), height=32, width=16))
    paths = [record.path for record in (*test.query, *test.gallery)]
    features = dict(zip([Path(path).name for path in paths], model.extract(paths), strict=True))
    metrics = evaluator.evaluate(model)[0].metrics
    wanted = official(features, outfits)
    assert (metrics["mAP"], metrics["rank1"]) == pytest.approx(wanted, abs=1e-4)
    assert wanted != official(features, {"both": "same", "same": "changed", "changed": "both"}[outfits])


def test_an_outfit_filter_needs_outfits(root: Path) -> None:
    cfg = load_config([], ["EVAL.OUTFITS", "changed"])
    test = query_gallery([spec_of("mevid").load(root)], "seen")
    plain_records = [tuple(type(each).__mro__[1](*each) for each in records) for records in (test.query, test.gallery)]
    without = QueryGallery("market1501", "unseen", *plain_records)
    with pytest.raises(InputError, match="^EVAL.OUTFITS is changed, .*market1501"):
        evaluator_of(cfg, Benchmark("", (), (without,)))


def test_some_frames_are_spread_and_nothing_is_read_twice(archives: Path, tmp_path: Path) -> None:
    prepare("mevid", tmp_path, sorted(archives.iterdir()), frames=2)
    train = spec_of("mevid").load(tmp_path).train
    assert [(each.tracklet, each.path[-9:-4]) for each in train[:4]] == [
        (0, "00000"), (0, "00002"), (1, "00001"), (1, "00003"),
    ]  # fmt: skip
    assert len(train) == sum(min(frames, 2) for *_, frames in TRAIN)
    os.utime(train[0].path, ns=(1, 1))
    prepare("mevid", tmp_path, sorted(archives.iterdir()), frames=4)
    assert os.stat(train[0].path).st_mtime_ns == 1
    assert len(spec_of("mevid").load(tmp_path).train) == 12


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_truncated_archive_keeps_the_files_before_the_cut(archives: Path, tmp_path: Path, keep: float) -> None:
    cut = tmp_path / "mevid-v1-bbox-train.tgz"
    whole = (archives / cut.name).read_bytes()
    cut.write_bytes(whole[: int(keep * len(whole))])
    others = [archives / "mevid-v1-annotation-data.zip", archives / "mevid-v1-bbox-test.tgz"]
    with pytest.raises(InputError, match=cut.name):
        prepare("mevid", tmp_path, [cut, *others])
    there = sorted((tmp_path / "mevid").rglob("*.jpg"))
    assert there and all(path.read_bytes() == jpeg(path.name) for path in there)
    cut.write_bytes(whole)
    prepare("mevid", tmp_path, [cut, *others])
    assert len(spec_of("mevid").load(tmp_path).train) == 13


def test_missing_archives_are_named(archives: Path, tmp_path: Path) -> None:
    texts = "mevid-v1-annotation-data.zip"
    for archive, named in (("mevid-v1-bbox-test.tgz", f"train_name.txt, .*{texts}"), (texts, "13 frames .*0001O001")):
        with pytest.raises(InputError, match=named):
            prepare("mevid", tmp_path, [archives / archive])
    with pytest.raises(InputError, match="--frames: viper"):
        prepare("viper", tmp_path, frames=3)


FAULTS = [
    ("track_train_info.txt", 2, "3 7 1 2", "track_train_info.txt: .*row 2"),
    ("track_train_info.txt", 2, "2 7 1 2 331", "train_name.txt:3: .*person 1, outfit 2, camera 331"),
    ("track_test_info.txt", 1, "0 1 204 1 329", "test_name.txt:1: .*204"),
    ("track_test_info.txt", 12, "23 99 203 1 330", r"test_name.txt:\d+: .*203"),
    ("query_IDX.txt", 2, "four", "query_IDX.txt: .*four"),
    ("outfit_dates.txt", 1, "1 2 yesterday", "outfit_dates.txt:1: .*'1 2 yesterday'"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "line", "text", "message"), FAULTS)
def test_malformed_lines_are_named(home: Path, file: str, line: int, text: str, message: str) -> None:
    lines = (home / file).read_text().splitlines() if (home / file).exists() else [""]
    lines[line - 1] = text
    (home / file).write_text("\n".join(lines))
    with pytest.raises(InputError, match=message):
        mevid.read(home)


def test_a_tracklet_without_a_frame_is_named(home: Path) -> None:
    (home / "bbox_train").unlink()
    (home / "bbox_train/0001").mkdir(parents=True)
    with pytest.raises(InputError, match="bbox_train: .*5 tracklets, .*0001O001.* line 1 "):
        mevid.read(home)


def test_people_return_on_later_tasks_with_their_label(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    sites = [["admin", 329, 326], ["bus", 331]]
    benchmark = plain(train=["mevid"], root=home.parent, groups=sites)
    assert [(task.name, task.classes) for task in benchmark.tasks] == [("mevid admin", [0, 1]), ("mevid bus", [0, 2])]
    assert [task.index for task in benchmark.tasks] == [0, 1]
    later = plain(train=["mevid"], root=home.parent, groups=sites, learned_identities=5)
    assert [(task.index, task.classes) for task in later.tasks] == [(0, []), (1, [5, 6]), (2, [5, 7])]
    assert [{each.outfit for each in task.records if each.pid == 0} for task in benchmark.tasks] == [{1}, {2}]
    assert "left out 1 image, because no group has their camera: 436" in caplog.text
    days = {"group_by": "date", "groups": [["day 1", "2018-03-07"], ["day 2", "2018-03-09"]]}
    with pytest.raises(ArgumentError, match="group_by is date"):
        plain(train=["mevid"], root=home.parent, **days)
    (home / "outfit_dates.txt").write_text("1 1 2018-03-07\n1 2 2018-03-09\n2 1 2018-03-09\n3 7 2018-03-07\n")
    assert [task.classes for task in plain(train=["mevid"], root=home.parent, **days).tasks] == [[0, 1], [0, 2]]
    for groups, fault in (
        ([["a", 329], ["b", 331, 329]], "groups has 329 in a and in b"),
        ([["a", 5]], "groups has a without an image of mevid"),
    ):
        with pytest.raises(ArgumentError, match=fault):
            plain(train=["mevid"], root=home.parent, groups=groups)
    with pytest.raises(ArgumentError, match="groups"):
        plain(train=["mevid"], root=home.parent, groups=sites, tasks_per_dataset=2)
