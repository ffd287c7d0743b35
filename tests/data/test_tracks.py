"""A re-identification set out of videos and tracks: who is cut out, when, and what is said of files that do not fit."""

import csv
import json
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from lreid.data import tables
from lreid.data.tracker_boxes import read_tracks
from lreid.data.tracks import Choice, from_tracks, sharpness
from lreid.data.videos import Tracked, open_video
from lreid.errors import InputError
from lreid.link.cutting import Clip, cut

COLOURS = {1: (220, 30, 30), 2: (30, 200, 30), 3: (40, 40, 220), 4: (200, 200, 40), 5: (40, 200, 200)}
HEIGHT, WIDTH, FRAMES, RATE = 120, 240, 20, 10


def box(track: int, frame: int) -> tuple[int, int, int, int]:
    """Left, top, width and height."""
    return 4 + 46 * (track - 1) + frame // 4, 10, 36, 80


def frame_of(number: int, tracks=COLOURS) -> np.ndarray:
    """A frame (H, W, 3), RGB: bars with fine stripes, which are blurred in all but every fifth frame."""
    frame = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    for track in tracks:
        left, top, width, height = box(track, number)
        frame[top : top + height, left : left + width] = COLOURS[track]
        if number % 5 == 0:
            frame[top : top + height : 4, left : left + width] //= 2
    return frame


def lines(tracks=COLOURS, frames=range(1, FRAMES + 1), end: str = "1,-1,-1,-1") -> list[str]:
    return [",".join(map(str, (f, t, *box(t, f)))) + f",{end}" for f in frames for t in tracks]


@pytest.fixture
def gate(tmp_path: Path) -> tuple[Path, Path]:
    """A video and its tracks."""
    video, tracks = tmp_path / "gate.avi", tmp_path / "gate.txt"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*"MJPG"), RATE, (WIDTH, HEIGHT))
    for number in range(1, FRAMES + 1):
        writer.write(frame_of(number)[..., ::-1])
    writer.release()
    tracks.write_text("\n".join(lines()))
    return video, tracks


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / "index.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_sharpest_image_of_every_interval_is_kept(gate, tmp_path: Path) -> None:
    video, tracks = gate
    assert from_tracks([video], [tracks], tmp_path / "set", Choice(every=0.5)) == 20
    rows = table(tmp_path / "set")
    assert Counter(row["pid"] for row in rows) == {f"gate-{track}": 4 for track in COLOURS}
    assert {Path(row["path"]).name for row in rows} == {f"{number:06d}.jpg" for number in (5, 10, 15, 20)}
    assert {row["domain"] for row in rows} == {"gate"}
    assert [row["time"] for row in rows if row["pid"] == "gate-1"] == ["0", "0", "1", "1"]
    for row in rows:
        image = np.array(Image.open(tmp_path / "set" / row["path"]))
        assert image.shape == (80, 36, 3)
        whole = image[2::4].mean((0, 1))  # JPEG, twice
        assert np.abs(whole - COLOURS[int(row["pid"].rpartition("-")[2])]).max() < 45
    (data_set,) = tables.load(tmp_path / "set" / "index.csv")
    assert len(data_set.train) == 12 and len(data_set.query) == 2 and len(data_set.gallery) == 6


def test_long_track_gives_evenly_spaced_images(gate, tmp_path: Path) -> None:
    from_tracks([gate[0]], [gate[1]], tmp_path / "set", Choice(every=0.1, most=2))
    frames = [int(Path(row["path"]).stem) for row in table(tmp_path / "set") if row["pid"] == "gate-1"]
    assert len(frames) == 2 and frames[0] <= 10 < frames[1]


def test_small_and_cut_boxes_are_left_out(gate, tmp_path: Path) -> None:
    video, tracks = gate
    small, outside = [f"{n},8,5,5,20,40,1" for n in range(1, 9)], [f"{n},9,230,5,40,80,1" for n in range(1, 9)]
    tracks.write_text("\n".join([*lines(), *small, *outside]))
    from_tracks([video], [tracks], tmp_path / "set", Choice(height=41))
    assert {row["pid"] for row in table(tmp_path / "set")} == {f"gate-{track}" for track in COLOURS}
    for choice, limit in ((Choice(height=81), "81 pixels"), (Choice(sharpness=1e6), "1e[+]06")):
        with pytest.raises(InputError, match=f"gate.txt: .*{limit}"):
            from_tracks([video], [tracks], tmp_path / "none", choice)
    assert not list(tmp_path.glob("none*"))


def mot(folder: Path, tracks, *, rate: int = RATE, end: str = "1,1,1") -> Path:
    """A folder as those of MOT Challenge."""
    (folder / "img1").mkdir(parents=True)
    (folder / "gt").mkdir()
    for number in range(1, FRAMES + 1):
        Image.fromarray(frame_of(number, tracks)).save(folder / "img1" / f"{number:06d}.png")
    (folder / "gt/gt.txt").write_text("\n".join(lines(tracks, end=end)))
    (folder / "seqinfo.ini").write_text(f"[Sequence]\nname=x\nframeRate={rate}\n")
    return folder


def test_folders_of_mot_are_cameras_with_people_of_their_own(tmp_path: Path) -> None:
    north, south = mot(tmp_path / "all/north", (1, 2, 3, 4, 5)), mot(tmp_path / "all/south", (1, 2), rate=20)
    with open(north / "gt/gt.txt", "a") as file:
        file.write("\n1,77,5,5,40,80,0,1,1\n1,78,5,5,40,80,1,3,1\n")  # to be ignored; a car
    from_tracks([tmp_path / "all"], [], tmp_path / "set")
    found = Counter((row["domain"], row["pid"]) for row in table(tmp_path / "set"))
    assert found == {("north", f"north-{t}"): 4 for t in COLOURS} | {("south", f"south-{t}"): 2 for t in (1, 2)}
    assert "camid" not in table(tmp_path / "set")[0]
    from_tracks([south], [], tmp_path / "one")
    assert {row["domain"] for row in table(tmp_path / "one")} == {"south"}


def test_video_names_that_are_not_unicode_are_escaped(gate, tmp_path: Path) -> None:
    video = gate[0].rename(tmp_path / "caf\udce9.avi")
    from_tracks([video], [gate[1]], tmp_path / "set")
    (data_set,) = tables.load(tmp_path / "set" / "index.csv")
    assert data_set.name == r"caf\udce9" and all(Path(record.path).is_file() for record in data_set.train)


@pytest.mark.parametrize("rate", [None, 5.0])
def test_times_of_frames_come_from_the_container(tmp_path: Path, rate: float | None) -> None:
    """Frames 6 to 10 of a Matroska file last a second each, as of a camera in the dark; the stated rate stays 10."""
    video, tracks = tmp_path / "gate.mkv", tmp_path / "gate.txt"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*"MJPG"), RATE, (WIDTH, HEIGHT))
    for number in range(1, FRAMES + 1):
        writer.write(np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))  # one cluster each
    writer.release()
    content, at = bytearray(video.read_bytes()), 0
    times = [100 * number + 900 * min(max(number - 5, 0), 5) for number in range(FRAMES)]  # ms
    for number, time in enumerate(times):  # a block begins with its track (1), its time in the cluster, and flags
        at = content.index(b"\x81\0\0\x80", at + 1)
        content[at + 1 : at + 3] = (time - 100 * number).to_bytes(2, "big")
    video.write_bytes(content)
    tracks.write_text("\n".join([*lines([1], range(1, 6)), *lines([2], range(16, 21))]))
    wanted = [time / 1000 for time in times] if rate is None else [number / 5 for number in range(FRAMES)]
    assert [time for time, _ in open_video(Tracked("gate", video, tracks, rate))[1]] == pytest.approx(wanted)
    if rate is None:
        from_tracks([video], [tracks], tmp_path / "set")
        assert [(row["pid"], row["time"]) for row in table(tmp_path / "set")] == [("gate-1", "0"), ("gate-2", "6")]
        (_, tracklet) = cut(Clip("gate", video, tracks, 1e9, None), tmp_path / "crops", Choice())
        assert (tracklet["start"], tracklet["end"]) == pytest.approx((1e9 + 6, 1e9 + 6.4))


def test_rate_of_frames_is_in_seqinfo_or_assumed_with_a_warning(tmp_path: Path, caplog) -> None:
    for number in range(3):
        (tmp_path / "img1").mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "img1" / f"{number}.png")
    times = [time for time, _ in open_video(Tracked("gate", tmp_path / "img1", tmp_path))[1]]
    assert times == [0, 1 / 25, 2 / 25] and "25" in caplog.text
    (tmp_path / "seqinfo.ini").write_text("[Sequence]\nframeRate=10\n")
    assert [time for time, _ in open_video(Tracked("gate", tmp_path / "img1", tmp_path))[1]] == [0, 0.1, 0.2]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("name", ["{}.png", "frame_{}.png", "{:03d}.png"])
def test_frames_are_in_the_order_of_their_numbers(name: str, tmp_path: Path) -> None:
    for number in range(1, FRAMES + 1):
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / name.format(number))
    _, frames = open_video(Tracked("gate", tmp_path, tmp_path))
    assert [int(frame[0, 0, 0]) for _, frame in frames] == list(range(1, FRAMES + 1))


def test_same_identities_get_cameras(tmp_path: Path) -> None:
    for camera in ("c001", "c002"):
        mot(tmp_path / "S01" / camera, COLOURS, end="1,-1,-1,-1")
    from_tracks([tmp_path / "S01"], [], tmp_path / "set", same=True)
    rows = table(tmp_path / "set")
    assert Counter((row["pid"], row["camid"]) for row in rows) == {
        (str(track), camera): 4 for track in COLOURS for camera in ("c001", "c002")
    }
    (data_set,) = tables.load(tmp_path / "set" / "index.csv")
    assert data_set.query and {record.camid for record in data_set.query} == {0, 1}


def test_columns_are_separated_by_commas_or_spaces_and_sorted_by_frame(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text("2 1 3 4 5 6\n1, 1, 3.5, 4, 5, 6, 0.9\n\n")
    assert [tuple(each)[1:] for each in read_tracks(file)] == [(1, 1, 3.5, 4, 5, 6), (2, 1, 3, 4, 5, 6)]


def test_sharpness_is_the_variance_of_the_laplacian() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    grey = image.astype(float) @ [0.299, 0.587, 0.114]
    wanted = [
        grey[y - 1, x] + grey[y + 1, x] + grey[y, x - 1] + grey[y, x + 1] - 4 * grey[y, x]
        for y in range(1, 8)
        for x in range(1, 6)
    ]
    assert sharpness(image) == pytest.approx(np.var(wanted))
    assert sharpness(np.full((9, 9, 3), 7, np.uint8)) == 0 == sharpness(image[:2])


FAULTS = {
    "1,1,5,5,-20,40": "t.txt:1: .*track 1 has -20 x 40 pixels",
    "1,1,5,5,20,0": "t.txt:1: .*track 1 has 20 x 0 pixels",
    "0,1,5,5,20,40": "t.txt:1: frame 0, track 1",
    "1.5,1,5,5,20,40": "t.txt:1: frame 1.5, track 1",
    "1,-1,5,5,20,40": "t.txt:1: track -1",
    "1,1,5,5,20": "t.txt:1: .*'1,1,5,5,20'",
    "1,1,nan,5,20,40": "t.txt:1: expected frame",
    "1,1,5,5,20,40\n\n1,1,9,5,20,40": "t.txt:3: track 1 .*line 1",
    "1,1,5,5,20,40,0": "t.txt: holds no tracks.*confidence 0: 1",
    "1,1e300,5,5,20,40": "t.txt:1: frame 1, track 1e[+]300",
    "1,9007199254740993,5,5,20,40": "t.txt:1: frame 1, track 9.*2.53",
    "": "t.txt: holds no tracks",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_faulty_tracks_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(InputError, match=FAULTS[text]):
        read_tracks(tmp_path / "t.txt")


def nine_columns(*labels: int) -> str:
    """Of a tracker: track 1 has the first class, and so on; two frames."""
    return "\n".join(f"{n},{t},{9 * t},5,20,40,0.9,{label},-1" for n in (1, 2) for t, label in enumerate(labels, 1))


def test_classes_of_a_tracker_are_not_filtered_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of nine values resemble MOT's ground truth, of which class 3 (cars) is left out."""
    caplog.set_level("INFO")
    file = tmp_path / "t.txt"
    file.write_text(nine_columns(3, 3))
    assert [box.track for box in read_tracks(file)] == [1, 2, 1, 2] and not caplog.messages
    file.write_text(nine_columns(1, 3, 3))
    assert [box.track for box in read_tracks(file)] == [1, 2, 3] * 2
    assert "1: 2, 3: 4" in caplog.text
    assert [box.track for box in read_tracks(file, [3])] == [2, 3] * 2
    assert "class 1: 2" in caplog.text
    assert len(read_tracks(file, [1, 3])) == 6
    with pytest.raises(InputError, match="t.txt: holds no tracks.*class 1: 2, class 3: 4"):
        read_tracks(file, [2])
    file.write_text("1,1,5,5,20,40,0.9\n")
    with pytest.raises(InputError, match="t.txt:1: has no class"):
        read_tracks(file, [1])


def test_json_of_supervision_and_ultralytics_gives_the_boxes_of_mot(tmp_path: Path) -> None:
    mot, file = tmp_path / "t.txt", tmp_path / "t.json"
    mot.write_text("1,7,5,6,20,40,1\n3,8,15,16,20.5,40,1\n")
    wanted = [box[1:] for box in read_tracks(mot)]
    corners = [(5, 6, 25, 46, 0, 7), (15, 16, 35.5, 56, 2, 8), (1, 1, 9, 9, 2, None)]  # then frame and track
    rows = [
        dict(zip(("x_min", "y_min", "x_max", "y_max", "frame_index", "tracker_id"), each, strict=True))
        | {"class_id": 0}
        for each in corners
    ]
    file.write_text(json.dumps(rows).replace("null", '""'))
    assert [box[1:] for box in read_tracks(file)] == wanted
    table = [",".join(rows[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(table))
    assert [box[1:] for box in read_tracks(tmp_path / "t.csv", [0])] == wanted
    frames: list[list[dict]] = [[], [], []]
    for left, top, right, bottom, frame, track in corners:
        box = {"x1": left, "y1": top, "x2": right, "y2": bottom}
        frames[frame].append({"name": "person", "class": 0, "box": box} | ({"track_id": track} if track else {}))
    file.write_text(json.dumps(frames))
    assert [box[1:] for box in read_tracks(file)] == wanted
    for label in ("2.0", '"2"'):
        file.write_text(json.dumps(frames).replace('"class": 0', f'"class": {label}'))
        assert [box[1:] for box in read_tracks(file, [2])] == wanted
    for content in ('{"a": 1}', "[1]", '[{"x_min": 1}]', '[[{"track_id": 1}]]', '[{"x1": "a"}]', "[", "[]"):
        file.write_text(content)
        with pytest.raises(InputError, match=r"t\.json: "):
            read_tracks(file)


def test_boxes_without_a_track_number_are_counted_or_refused(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    file, corners = tmp_path / "t.json", {"x1": 5, "y1": 6, "x2": 25, "y2": 46}
    file.write_text(json.dumps([[{"box": corners, "track_id": 1}, {"box": corners}], [{"box": corners}]]))
    assert len(read_tracks(file)) == 1 and "no track number: 2" in caplog.text
    file.write_text(json.dumps([[{"box": corners}]]))
    with pytest.raises(InputError, match=r"t\.json: .*track") as error:
        read_tracks(file)
    assert type(error.value) is InputError  # not the file of a camera that saw nobody


@pytest.mark.parametrize("text", ["1,1,0.1,0.2,0.2,0.5\n2,1,0.9,0.2,0.2,1.1", "1 1 0 0 1 1"])
def test_boxes_in_shares_of_the_frame_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(InputError, match=r"t\.txt: .*pixels"):
        read_tracks(tmp_path / "t.txt")


def test_boxes_that_leave_the_frame_are_counted(gate, tmp_path: Path, caplog) -> None:
    """Two corners in place of width and height make many boxes leave the frame."""
    boxes = [(f, t, *box(t, f)) for f in range(1, 6) for t in COLOURS]
    gate[1].write_text("\n".join(f"{f},{t},{x},{y},{x + w},{y + h}" for f, t, x, y, w, h in boxes))
    insides = [(min(2 * x + w, WIDTH) - x) * min(2 * y + h, HEIGHT) / (x + w) / (y + h) for *_, x, y, w, h in boxes]
    outside = sum(share < 0.5 for share in insides)
    cut(Clip("gate", *gate, 0.0, None), tmp_path / "crops", Choice())
    from_tracks([gate[0]], [gate[1]], tmp_path / "set")
    assert outside > 4 and sum(f"{outside} boxes" in each for each in caplog.messages) == 2


def test_boxes_left_out_of_ground_truth_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file = tmp_path / "gt.txt"
    file.write_text(nine_columns(1, 3, 7) + "\n3,9,5,5,20,40,0,8,1")
    assert [box.track for box in read_tracks(file)] == [1, 1]
    assert "class 3: 2, class 7: 2, confidence 0: 1" in caplog.text
    assert [box.track for box in read_tracks(file, [3])] == [2, 2]
    file.write_text(nine_columns(3, 3))
    with pytest.raises(InputError, match="gt.txt: holds no tracks.*class 3: 4"):
        read_tracks(file)


@pytest.mark.parametrize("rate", ["1e-300", "-1", "0", "inf", "nan", "fast", ""])
def test_impossible_frame_rate_raises_an_error(rate: str, tmp_path: Path) -> None:
    folder = mot(tmp_path / "north", (1, 2, 3, 4))
    (folder / "seqinfo.ini").write_text(f"[Sequence]\nframeRate={rate}\n")
    with pytest.raises(InputError, match="seqinfo.ini"):
        from_tracks([folder], [], tmp_path / "set")
    assert not list(tmp_path.glob("set*"))


def test_videos_that_do_not_fit_are_named(gate, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    video, tracks = gate
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "cut.avi").write_bytes(video.read_bytes()[:300])
    (tmp_path / "late.txt").write_text("\n".join(lines(frames=range(30, 40))))
    for videos, of, fault in (
        (["text.mp4"], [tracks], "text.mp4: "),
        (["cut.avi"], [tracks], "cut.avi: "),
        (["gone.mp4"], [tracks], "gone.mp4: no such"),
        (["gate.avi"], [], "gate.avi: .*--tracks"),
        (["gate.avi"] * 2, [tracks], "2 videos and 1 --tracks"),
        (["gate.avi"] * 2, [tracks] * 2, "two .* gate"),
        (["gate.avi"], [tmp_path / "late.txt"], "late.txt:1: 50 of 50 .*frame 20"),
    ):
        with pytest.raises(InputError, match=fault):
            from_tracks([tmp_path / name for name in videos], of, tmp_path / "set")
    assert not list(tmp_path.glob("set*"))
    tracks.write_text("\n".join(lines(frames=range(16, 26))))
    from_tracks([video], [tracks], tmp_path / "set")
    assert "25 of 50 boxes come after frame 20" in caplog.text
    with pytest.raises(InputError, match="set: already exists; choose another --out"):
        from_tracks([video], [tracks], tmp_path / "set")
