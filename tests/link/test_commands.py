"""``lreid link`` from videos to identities: corrections, undo, removal, and refused input."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from example_files import write_checkpoint
from zoo_entries import write_entry

from lreid.apps.cli import run_command
from lreid.data.videos import shown
from lreid.gallery import Gallery
from lreid.link.folder import CROPS, JOURNAL, announce, changing

COLOURS = ((220, 30, 30), (30, 200, 30), (40, 40, 220))
WIDTH, HEIGHT, SECONDS = 40, 80, 4
PLAIN = ("--device", "cpu", "--threshold", 0.99, "--raw")


def film(folder: Path, camera: str, day: int, start: str, people: tuple[int, ...] = (0, 1, 2)) -> dict[str, str]:
    """Write a video of one frame per second that shows people, each in one colour, one after another."""
    dice, stem, lines = np.random.default_rng(day), f"{camera}-{day}", []
    video = cv2.VideoWriter(str(folder / f"{stem}.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 1, (2 * WIDTH, HEIGHT))
    for number in range(len(people) * SECONDS):
        person, track = people[number // SECONDS], number // SECONDS + 1
        frame = dice.integers(0, 40, (HEIGHT, 2 * WIDTH, 3)).astype(np.uint8)
        frame[:, :WIDTH] += np.array(COLOURS[person], np.uint8)
        video.write(np.ascontiguousarray(frame[..., ::-1]))
        lines.append(f"{number + 1},{track},0,0,{WIDTH},{HEIGHT},1,-1,-1,-1")
    video.release()
    (folder / f"{stem}.txt").write_text("\n".join(lines))
    return {"video": f"{stem}.avi", "tracks": f"{stem}.txt", "start": start}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    write_checkpoint(folder / "model.pt", MODEL__BACKBONE="few")
    for day in (1, 2):
        cameras = {
            name: film(folder, name, day, f"2026-03-0{day}T0{hour}:00:00") for name, hour in (("a", 8), ("b", 9))
        }
        (folder / f"day-{day}.yaml").write_text(yaml.safe_dump({"cameras": cameras}))
    return folder


def lreid(*words: object) -> int:
    return run_command("link", list(map(str, words)), prog="lreid link")


@pytest.fixture(scope="module")
def first_day(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "linked"
    assert add(films, folder) == 0
    return folder


@pytest.fixture
def linked(first_day: Path, tmp_path: Path) -> Path:
    """A folder with the tracklets of the first day, which a test may change."""
    return shutil.copytree(first_day, tmp_path / "linked")


def add(films: Path, linked: Path, day: int = 1, *more: object) -> int:
    model = () if linked.exists() else ("--checkpoint", films / "model.pt")
    return lreid("add", linked, films / f"day-{day}.yaml", *model, *PLAIN, *more)


def relink(linked: Path, threshold: float = 0.99) -> int:
    return lreid("relink", linked, "--threshold", threshold, "--raw")


def content(linked: Path) -> dict:
    return json.loads((linked / "identities.json").read_text())


def identities(linked: Path) -> dict[str, int]:
    return {each["key"]: each["identity"] for each in content(linked)["tracklets"]}


def gallery(linked: Path) -> dict[str, str]:
    images = Gallery.load(linked / "people.gallery").images()
    return {image.path: str(image.identity) for image in images}


def test_boxes_of_other_classes_are_left_out(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(films, tmp_path / "linked", 1, "--class", 5) == 2
    boxes = 3 * SECONDS
    assert f"a-1.txt: holds no tracks except boxes that lreid leaves out (class -1: {boxes};" in capsys.readouterr().err


def test_days_are_linked_corrected_undone_and_removed(films: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    assert add(films, linked) == 0
    first = identities(linked)
    assert first == {f"{c}/20260301T0{h}0000/{t}": t for c, h in (("a", 8), ("b", 9)) for t in (1, 2, 3)}
    whole = (linked / "identities.json").read_bytes()
    assert add(films, linked, 2) == 0
    second = identities(linked)
    assert first.items() <= second.items() and {*second.values()} == {1, 2, 3} and len(second) == 12
    lines = (linked / "tracks" / "b-20260302T090000.txt").read_text().splitlines()
    assert [int(line.split(",")[1]) for line in lines] == [1] * SECONDS + [2] * SECONDS + [3] * SECONDS
    both = (linked / "identities.json").read_bytes()

    key = "b/20260302T090000/3"
    for words in (("merge", 1, 2), ("split", 3, key), ("apart", 1, 3), ("name", 2, "anna")):
        assert lreid(words[0], linked, *words[1:]) == 0
        assert (linked / "identities.json").read_bytes() != both
        named = gallery(linked)
        for each in content(linked)["tracklets"]:
            name = content(linked)["names"].get(str(each["identity"]), f"unknown-{each['identity']}")
            assert {named[f"tracklets/{each['key']}/{crop}"] for crop in each["crops"]} == {name}
        assert lreid("undo", linked) == 0
        assert (linked / "identities.json").read_bytes() == both
    assert lreid("undo", linked) == 0 and (linked / "identities.json").read_bytes() == whole
    assert not (linked / "tracklets" / "a" / "20260302T080000").exists() and len(gallery(linked)) == 24

    assert lreid("name", linked, 2, "anna") == 0 and lreid("remove", linked, "--identity", "anna") == 0
    assert {*identities(linked).values()} == {1, 3} and {*gallery(linked).values()} == {"unknown-1", "unknown-3"}
    left = [path for path in linked.rglob("*") if path.is_file() and b"anna" in path.read_bytes()]
    assert not left and not (linked / "tracklets" / "a" / "20260301T080000" / "2").exists()
    assert add(films, linked, 2) == 0 and {*identities(linked).values()} == {1, 3, 4}  # 2 is never used again
    assert lreid("remove", linked, "--keep-days", 0.001) == 0 and not content(linked)["tracklets"]
    assert not list((linked / "tracklets").rglob("*.jpg")) and not gallery(linked)
    assert not content(linked)["clips"] and not list((linked / "tracks").iterdir())


def test_page_lists_trips_but_no_nights(films: Path, linked: Path) -> None:
    assert add(films, linked, 2) == 0
    page = (linked / "index.html").read_text()
    trips = page[page.index("Transitions within 3600 seconds") :]
    assert re.findall(r"<t[dh][^>]*>\s*(\w)\s*</t[dh]>", trips)[:3] == ["a", "b", "3"] and "82" not in trips


def test_relink_keeps_numbers_and_corrections(linked: Path) -> None:
    assert lreid("merge", linked, 1, 2) == 0 and lreid("apart", linked, 1, 3) == 0
    before = identities(linked)
    assert relink(linked) == 0 and identities(linked) == before
    assert relink(linked, -1) == 0 and identities(linked) == before


def test_two_people_stay_apart_after_a_split(linked: Path) -> None:
    moved, rest, others = "a/20260301T080000/1", "b/20260301T090000/1", ("a/20260301T080000/3", "b/20260301T090000/3")
    assert lreid("apart", linked, 1, 3) == 0 and lreid("split", linked, 1, moved) == 0
    assert relink(linked, -1) == 0
    linked_now = identities(linked)
    assert linked_now[rest] not in {linked_now[moved], *(linked_now[key] for key in others)}


def enrol(linked: Path, key: str, name: str) -> None:
    """Add an image to the gallery, with a name and the feature of a tracklet's first crop."""
    of = Gallery.load(linked / "people.gallery")
    labels = of.labels()
    row = next(row for row, path in enumerate(labels.paths) if path.startswith(f"tracklets/{key}/"))
    of.add(of.features(labels.keys[[row]]), [f"/{name}.jpg"], [name], [None], [0], model=of.about.model)
    of.save()


def test_relink_gives_the_number_of_an_enrolled_person_only_to_similar_or_merged_tracklets(linked: Path) -> None:
    enrol(linked, "a/20260301T080000/1", "anna")
    for threshold in (0, 0.99):  # first all tracklets are anna
        assert relink(linked, threshold) == 0
    assert len({*identities(linked).values()}) == 3
    (number,) = (int(each) for each, name in content(linked)["names"].items() if name == "anna")
    of_anna = [key for key, identity in identities(linked).items() if identity == number]
    assert of_anna == ["a/20260301T080000/1", "b/20260301T090000/1"]
    other = identities(linked)["a/20260301T080000/2"]
    assert lreid("merge", linked, "anna", other) == 0 and relink(linked) == 0
    assert [*identities(linked).values()].count(number) == 4


def test_relink_names_people_enrolled_after_linking(linked: Path) -> None:
    enrol(linked, "a/20260301T080000/1", "anna")
    assert relink(linked) == 0
    assert content(linked)["names"] == {"1": "anna"} and {*identities(linked).values()} == {1, 2, 3}
    assert lreid("undo", linked) == 0 and not content(linked)["names"] and lreid("name", linked, 1, "berta") == 0
    assert relink(linked) == 0
    assert content(linked)["names"] == {"1": "berta", "4": "anna"} and {*identities(linked).values()} == {2, 3, 4}


def test_new_name_of_an_enrolled_person_survives_relink_and_undo(linked: Path) -> None:
    enrol(linked, "a/20260301T080000/1", "anna")
    assert relink(linked) == 0
    assert lreid("name", linked, 2, "anna") == 2  # the enrolled person has the name
    assert lreid("name", linked, "anna", "berta") == 0
    assert gallery(linked)["/anna.jpg"] == "berta"
    before = identities(linked)
    assert relink(linked) == 0
    assert identities(linked) == before and [*content(linked)["names"].values()] == ["berta"]
    assert lreid("name", linked, "berta", "carla") == 0 and lreid("undo", linked) == 0
    assert gallery(linked)["/anna.jpg"] == "berta"


def test_tracklet_split_from_an_enrolled_person_stays_apart(linked: Path) -> None:
    stranger, anna = "a/20260301T080000/1", "b/20260301T090000/1"
    enrol(linked, stranger, "anna")  # the image is most similar to the stranger
    for threshold in (0.99, -1):
        assert relink(linked) == 0
        if threshold == 0.99:
            assert lreid("split", linked, "anna", stranger) == 0
        assert relink(linked, threshold) == 0
        named = gallery(linked)
        assert named[f"tracklets/{stranger}/000001.jpg"] != "anna" == named[f"tracklets/{anna}/000001.jpg"]


def test_name_of_an_enrolled_person_cannot_be_removed(linked: Path, capsys) -> None:
    enrol(linked, "a/20260301T080000/1", "anna")
    assert relink(linked) == 0
    before, number = (linked / "identities.json").read_bytes(), {*content(linked)["names"]}.pop()
    capsys.readouterr()
    assert lreid("name", linked, "anna", f"unknown-{number}") == 2
    error = capsys.readouterr().err
    assert "anna: images such as /anna.jpg are enrolled under this name" in error and error.count("\n") == 1
    assert (linked / "identities.json").read_bytes() == before
    assert lreid("name", linked, 2, "berta") == 0 and lreid("name", linked, "berta", "unknown-2") == 0
    assert "berta" not in gallery(linked).values()


def test_foreign_files_between_tracklets_do_not_delete_crops(linked: Path) -> None:
    crops = sorted((linked / "tracklets").rglob("*.jpg"))
    for folder in ("", "a", "a/20260301T080000", "a/20260301T080000/1"):
        (linked / "tracklets" / folder / ".DS_Store").write_bytes(b"seen")
    assert lreid("name", linked, 1, "anna") == 0
    assert sorted((linked / "tracklets").rglob("*.jpg")) == crops


def test_empty_folders_that_a_killed_command_announced_are_deleted(tmp_path: Path) -> None:
    for folder in ("gate/0/1", "gate/0/2", "mine"):
        (tmp_path / CROPS / folder).mkdir(parents=True)
    (tmp_path / JOURNAL).write_text(f"{CROPS}/gate/0")
    with changing(tmp_path, "add", new=True):
        announce(tmp_path, ["gate/0"])  # refuses folders that exist
    assert [each.name for each in (tmp_path / CROPS).iterdir()] == ["mine"]


def test_removed_person_is_in_no_file_of_any_version(linked: Path) -> None:
    place, upload = linked / "people.gallery", linked / "people.gallery.images" / f"{'0' * 32}.png"
    of = Gallery.load(place)
    of.add(of.features(of.labels().keys[:1]), [str(upload)], ["anna"], [None], [0], model=of.about.model)
    of.save()
    upload.parent.mkdir()
    upload.write_bytes(b"anna")
    shutil.copy(place, f"{place}.previous")
    killed = linked / ".people.gallery.0123abcd.lreid"
    killed.mkdir()
    shutil.copy(place, killed / "copy.gallery")
    assert relink(linked) == 0 and lreid("remove", linked, "--identity", "anna") == 0
    assert not killed.exists() and not upload.exists()
    assert not [path for path in linked.rglob("*") if path.is_file() and b"anna" in path.read_bytes()]


def test_files_of_the_user_are_not_changed(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    linked, outside = tmp_path / "linked", tmp_path / "outside"
    own = [outside / "mine.txt", linked / "tracklets" / "x" / "y" / "z" / "000001.jpg", linked / "notes.jpg"]
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    (linked / "tracks").symlink_to(outside)
    model = ("--checkpoint", films / "model.pt", *PLAIN)
    assert lreid("add", linked, films / "day-1.yaml", *model[2:], "--checkpoint", films / "day-1.yaml") == 2
    assert lreid("add", linked, films / "day-1.yaml", *model) == 0
    own.append(linked / "tracklets" / "a" / "20260301T080000" / "1" / "mine.png")
    own[-1].write_text("mine")
    assert lreid("name", linked, 1, "anna") == 0 and lreid("remove", linked, "--identity", "anna") == 0
    assert lreid("undo", linked) == 2 and lreid("remove", linked, "--keep-days", 0.001) == 0
    assert all(file.read_text() == "mine" for file in own)
    assert [*outside.iterdir()] == [outside / "mine.txt"] and len([*linked.rglob("*.jpg")]) == 2


@pytest.mark.parametrize("name", ["index.html", "tracklets/b/20260301T090000", "tracks/b-20260301T090000.txt"])
def test_files_that_lreid_did_not_write_are_not_replaced(films: Path, tmp_path: Path, capsys, name: str) -> None:
    foreign = tmp_path / "linked" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    assert lreid("add", tmp_path / "linked", films / "day-1.yaml", "--checkpoint", films / "model.pt", *PLAIN) == 2
    error = capsys.readouterr().err
    assert str(foreign) in error and error.count("\n") == 1
    assert [path for path in (tmp_path / "linked").rglob("*") if path.is_file()] == [foreign]
    assert foreign.read_text() == "mine"


def test_relink_without_tracklets_is_refused(linked: Path, capsys) -> None:
    assert lreid("remove", linked, "--keep-days", 0.001) == 0
    assert lreid("relink", linked, "--threshold", 0.99) == 2
    assert "has no tracklets to link" in capsys.readouterr().err


def test_online_linking_finds_earlier_identities(films: Path, linked: Path) -> None:
    assert add(films, linked, 2, "--online", "--delay", 2) == 0
    assert {*identities(linked).values()} == {1, 2, 3}


def test_online_linking_needs_a_new_threshold_for_a_new_model(films: Path, linked: Path, capsys) -> None:
    record, before = json.loads((linked / "identities.json").read_text()), identities(linked)
    (linked / "identities.json").write_text(json.dumps(record | {"model": "of another model"}))
    words = ("add", linked, films / "day-2.yaml", "--device", "cpu", "--raw", "--online")
    assert lreid(*words) == 2 and "--online has no threshold" in capsys.readouterr().err
    assert lreid(*words, "--threshold", 0.99) == 0 and before.items() <= identities(linked).items()


@pytest.mark.parametrize(("more", "people"), [((), 3), (("--online",), 6)])
def test_travel_times_are_learned_and_only_given_ones_are_stored(
    films: Path, linked: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], people: int
) -> None:
    monkeypatch.setattr("lreid.link.constraints.MIN_TRIPS", 2)
    # The first day shows that the way takes an hour. The new recordings show that it takes ten minutes, but online
    # linking learns only from tracklets that were linked before.
    hurried = {"a": film(films, "a", 5, "2026-03-05T08:00:00"), "b": film(films, "b", 5, "2026-03-05T08:10:00")}
    for travel, count in (([], people), ([["b", "a", 60]], 3)):
        (films / "day-5.yaml").write_text(yaml.safe_dump({"cameras": hurried, "travel": travel}))
        assert add(films, linked, 5, *more) == 0
        assert content(linked)["travel"] == travel and len({*identities(linked).values()}) == count
        assert lreid("undo", linked) == 0 and not content(linked)["travel"]


def test_online_without_a_threshold_is_refused_before_a_video_is_read(
    films: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lreid.link.commands.cut", None)
    words = ("add", tmp_path / "linked", films / "day-1.yaml", "--checkpoint", films / "model.pt", "--device", "cpu")
    assert lreid(*words, "--online") == 2 and "--online has no threshold" in capsys.readouterr().err
    assert not (tmp_path / "linked").exists()


def test_few_tracklets_take_the_threshold_of_the_card_then_the_stored_one(
    films: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"false_accept_rate": 0.01, "true_positive_rate": 0.9, "impostor_pairs": 9, "galleries": ["toy"]}
    card = write_entry(tmp_path, verification={"threshold": 0.99} | rates)
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    linked, limits = tmp_path / "linked", []
    for day in (1, 2):  # the three people of a recording are never seen at one time, so no pair is an impostor pair
        model = ("--checkpoint", f"zoo:{card.name}") * (day == 1)
        assert lreid("add", linked, films / f"day-{day}.yaml", *model, "--device", "cpu") == 0
        assert content(linked)["threshold"] == 0.99 and content(linked)["raw"] is True
        (linked / "identities.json").write_text(json.dumps(content(linked) | {"threshold": 0.99}))
        limits.append(caplog.messages[-1])
    assert {*identities(linked).values()} == {1, 2, 3} and len(identities(linked)) == 12
    assert "the card of zoo:" in limits[0] and "identities.json" in limits[1]
    assert all("is unknown" in each for each in limits)


def test_few_tracklets_of_a_model_without_threshold_are_stored_but_not_linked(films: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    words = ("add", linked, films / "day-1.yaml", "--checkpoint", films / "model.pt", "--device", "cpu")
    assert lreid(*words) == 0
    assert sorted(identities(linked).values()) == [1, 2, 3, 4, 5, 6] and content(linked)["threshold"] is None
    assert relink(linked) == 0 and len({*identities(linked).values()}) == 3


def test_merge_of_tracklets_in_one_frame_is_refused(films: Path, tmp_path: Path, capsys) -> None:
    lines = (films / "a-1.txt").read_text().splitlines()
    both = [f"{number},9,{WIDTH},0,{WIDTH},{HEIGHT},1,-1,-1,-1" for number in (2, 3)]
    (films / "both.txt").write_text("\n".join(lines + both))
    linked, clip = tmp_path / "linked", {"video": "a-1.avi", "tracks": "both.txt"}
    (films / "day-8.yaml").write_text(yaml.safe_dump({"cameras": {"a": clip}}))
    assert add(films, linked, 8) == 0
    of, before = identities(linked), (linked / "identities.json").read_bytes()
    capsys.readouterr()
    assert lreid("merge", linked, of["a/untimed/1"], of["a/untimed/9"]) == 2
    error = capsys.readouterr().err
    assert "2 frames from 2 to 3" in error and "a/untimed/9" in error and error.count("\n") == 1
    assert (linked / "identities.json").read_bytes() == before
    assert lreid("merge", linked, of["a/untimed/2"], of["a/untimed/9"]) == 0  # a later passage
    page = (linked / "index.html").read_text()
    assert "<code>a/untimed/9</code>" in page and "0:00:01" in page and "1970" not in page


def test_crops_are_synchronised_before_the_record(films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    assert add(films, tmp_path / "linked") == 0
    before = synced[: next(place for place, name in enumerate(synced) if "identities.json" in name)]
    assert {str(each) for each in (tmp_path / "linked" / "tracklets").rglob("*")} <= {*before}


def test_recording_without_people_is_left_out(films: Path, linked: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = {file: file.read_bytes() for file in linked.rglob("*") if file.suffix in (".json", ".txt", ".html")}
    (films / "empty.txt").write_text("")
    (films / "outside.txt").write_text(f"1,1,{5 * WIDTH},0,{WIDTH},{HEIGHT},1")
    still = cv2.VideoWriter(str(films / "still.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 1, (WIDTH, HEIGHT))
    for _ in range(SECONDS):
        still.write(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    still.release()
    for files, reason in (
        ({"video": "a-2.avi", "tracks": "empty.txt"}, "empty.txt: holds no tracks"),
        ({"video": "a-2.avi", "tracks": "outside.txt"}, "outside.txt: no box shows enough of a person"),
        ({"video": "still.avi"}, "still.avi: no object moves"),
    ):
        seen = yaml.safe_load((films / "day-2.yaml").read_text())["cameras"]
        cameras = {"c": files | {"start": "2026-03-02T08:00:00"}, **seen}
        (films / "day-4.yaml").write_text(yaml.safe_dump({"cameras": cameras}, sort_keys=False))
        caplog.clear()
        assert add(films, linked, 4) == 0
        (line,) = [each for each in caplog.messages if each.startswith("c/")]
        assert line.startswith("c/20260302T080000: left out, because nobody was seen (") and reason in line
        assert len(identities(linked)) == 12 and {each["camera"] for each in content(linked)["clips"]} == {"a", "b"}
        assert not (linked / "tracklets" / "c").exists() and len([*(linked / "tracks").iterdir()]) == 4
        assert lreid("undo", linked) == 0
        assert {file: file.read_bytes() for file in before} == before


def test_url_and_video_with_a_damaged_middle_are_read(films: Path, tmp_path: Path, caplog) -> None:
    content = (films / "a-1.avi").read_bytes()
    starts = [place.start() for place in re.finditer(b"00dc", content)]
    (films / "cut.avi").write_bytes(content[: starts[5]] + bytes(starts[7] - starts[5]) + content[starts[7] :])
    for number, video in enumerate((f"file://{films}/a-1.avi", "cut.avi")):
        linked, clip = tmp_path / f"{number}", {"video": video, "tracks": "a-1.txt", "start": "2026-03-01T08:00:00"}
        (films / "day-7.yaml").write_text(yaml.safe_dump({"cameras": {"a": clip}}))
        assert add(films, linked, 7) == 0 and len(identities(linked)) == 3
    assert "cut.avi: 10 of 12 frames can be read" in caplog.text


def test_password_of_a_url_is_not_stored() -> None:
    assert shown("rtsp://me:secret@host/live") == "rtsp://host/live"


def without_tracks(films: Path, cameras: dict) -> None:
    (films / "empty.txt").write_text("")
    for each in cameras.values():
        each["tracks"] = "empty.txt"


def after_the_video(films: Path, cameras: dict) -> None:
    text = "\n".join(f"{frame},1,0,0,{WIDTH},{HEIGHT},1" for frame in range(500, 510))
    (films / "late.txt").write_text(text)
    cameras["a"]["tracks"] = "late.txt"


def change(camera: str, **keys: object) -> Callable[[Path, dict], None]:
    return lambda films, cameras: cameras[camera].update(keys)


def rename(name: str) -> Callable[[Path, dict], None]:
    return lambda films, cameras: cameras.update({name: cameras.pop("a")})


BAD = {
    "clocks that overlap": (change("a", start="2026-03-01T08:00:03"), "order of their times"),
    "an invalid start": (change("a", start="soon"), "start is 'soon'"),
    "a start in 1989": (change("a", start="1989-12-31T23:59:59+00:00"), "a: start"),
    "a start in milliseconds": (change("a", start=1772438400000), "a: start"),
    "a time of day": (change("a", start=37800), "a: start"),  # YAML reads 10:30:00 as this number
    "one start with a time zone": (change("a", start="2026-03-02T09:00:00+01:00"), "time zone"),
    "one camera without a start": (lambda films, cameras: cameras["a"].pop("start"), "no start"),
    "an unknown key": (change("a", track="a.txt"), "cameras.a.track is unknown"),
    "an invalid rate": (change("a", rate=0), "rate is 0"),
    "no file of tracks": (change("b", tracks="none.txt"), "none.txt: no such file"),
    "no video": (change("a", video="none.avi"), "none.avi: no such video"),
    "zero tracklets": (without_tracks, "empty.txt: holds no tracks"),
    "a video that ends before the tracks": (after_the_video, "after frame 12"),
    "a camera without a name": (rename(" "), "folder"),
    "a camera that is a path": (rename("../a"), "folder"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_changes_nothing(films: Path, linked: Path, capsys, what: str) -> None:
    change_input, message = BAD[what]
    before = {file: file.read_bytes() for file in linked.rglob("*") if file.is_file()}
    cameras = yaml.safe_load((films / "day-2.yaml").read_text())["cameras"]
    change_input(films, cameras)
    (films / "day-3.yaml").write_text(yaml.safe_dump({"cameras": cameras}))
    capsys.readouterr()
    assert add(films, linked, 3) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert {file: file.read_bytes() for file in linked.rglob("*") if file.is_file()} == before


def test_invalid_corrections_are_refused(films: Path, linked: Path, tmp_path: Path, capsys) -> None:
    assert lreid("apart", linked, 1, 2) == 0
    for words, message in (
        (("merge", linked, 1, 2), "two people"),
        (("merge", linked, 1, 1), "same identity"),
        (("merge", linked, 1, 99), "no such identity"),
        (("split", linked, 1, "b/x/1"), "not a tracklet"),
        (("name", linked, 1, "unknown-2"), "another identity"),
        (("remove", linked, "--keep-days", -1), "keep-days is -1"),
        (("relink", linked, "--false-accept-rate", 2), "rate is 2"),
        (("undo", tmp_path / "nowhere"), "no such file or folder"),
    ):
        capsys.readouterr()
        assert lreid(*words) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    (films / "keys.yaml").write_text("cameras:\n  a: {video: a-1.avi}\ntravels: []\n")
    for name, message in (("keys.yaml", "travels is unknown"), (".", "is a folder; name a list of cameras in it")):
        assert lreid("add", linked, films / name) == 2 and message in capsys.readouterr().err
    (films / "twice.yaml").write_text("cameras:\n  a: {video: a-1.avi}\n  a: {video: a-1.avi}\n")
    assert lreid("add", linked, films / "twice.yaml") == 2 and "is in line 2" in capsys.readouterr().err
