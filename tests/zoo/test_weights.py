"""Where the weights of an entry come from."""

import errno
import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from disk_faults import DiskFaults
from power_cuts import Disk
from processes import fork_process, wait_for_exit
from zoo_entries import card_of, write_card

from lreid.errors import InputError
from lreid.utils.files import leftovers
from lreid.zoo import Card, card_beside, cards, read_card, read_entry, read_safetensors, weights_file, write_entry

CONTENT = b"weights" * 100


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LREID_ZOO_MIRROR", raising=False)
    return tmp_path / "cache"


def test_beside_the_card_first(tmp_path: Path, cache: Path) -> None:
    card = write_card(tmp_path / "mine.json", CONTENT, url="http://127.0.0.1:9/never-asked")
    (tmp_path / "mine.safetensors").write_bytes(CONTENT)
    assert weights_file(card) == tmp_path / "mine.safetensors" and not cache.exists()


def test_damage_and_absence(tmp_path: Path) -> None:
    card = write_card(tmp_path / "mine.json", CONTENT)
    with pytest.raises(InputError, match=r"mine.safetensors: no such file; put the weights next"):
        weights_file(card)
    (tmp_path / "mine.safetensors").write_bytes(CONTENT[:-1])
    with pytest.raises(InputError, match=r"mine.safetensors: is damaged or not the file of its card"):
        weights_file(card)


def test_the_mirror_is_asked_first_then_the_card_then_its_mirrors(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("mirror", "home", "other"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.safetensors").write_bytes(CONTENT)
    card = write_card(
        tmp_path / "mine.json",
        CONTENT,
        url=(tmp_path / "home" / "mine.safetensors").as_uri(),
        mirrors=[(tmp_path / "other" / "mine.safetensors").as_uri()],
    )
    monkeypatch.setenv("LREID_ZOO_MIRROR", (tmp_path / "mirror").as_uri() + "/")
    (tmp_path / "mirror" / f"mine-{card.sha256[:12]}.safetensors").write_bytes(b"cut")  # the other name is tried then
    for place in ("home", "other", "mirror"):  # each is enough
        file = weights_file(card)
        assert file == cache / f"mine-{card.sha256[:12]}.safetensors" and file.read_bytes() == CONTENT
        assert os.listdir(cache) == [file.name]
        file.unlink()
        (tmp_path / place / "mine.safetensors").unlink()
    with pytest.raises(InputError, match=r"mirror/mine.safetensors: .*home/mine.*: .*other/mine") as caught:
        weights_file(card)
    assert "\n" not in str(caught.value)


def test_models_of_one_name_do_not_share_a_file(tmp_path: Path) -> None:
    for folder, content in (("a", b"one"), ("b", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "there").write_bytes(content)
        address = (tmp_path / folder / "there").as_uri()
        assert weights_file(write_card(tmp_path / folder / "mine.json", content, url=address)).read_bytes() == content


def test_reading_safetensors(tmp_path: Path) -> None:
    content = safetensors.torch.save({"a": torch.arange(3.0)})
    (tmp_path / "whole").write_bytes(content)
    assert torch.equal(read_safetensors(tmp_path / "whole")["a"], torch.arange(3.0))
    for size in (0, 5, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:size])
        with pytest.raises(InputError, match=r"cut: cannot be loaded as safetensors"):
            read_safetensors(tmp_path / "cut")
    with pytest.raises(InputError, match="gone: no such file"):
        read_safetensors(tmp_path / "gone")


VERSIONS = {number: safetensors.torch.save({"a": torch.full((3,), float(number))}) for number in (0, 1, 2)}


def versions_in(folder: Path) -> set[float]:
    """The number that the entry's weights consist of, when it is opened again."""
    _, state = read_entry(read_card(folder / "mine.json"))
    return set(state["a"].tolist())


def before_hashes(folder: Path) -> Card:
    """An entry as it was published before file names held hashes."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.safetensors").write_bytes(VERSIONS[0])
    return write_card(folder / "mine.json", VERSIONS[0])


def before(folder: Path, first: str) -> None:
    """The same, or one that was published again since."""
    before_hashes(folder)
    if first == "published":
        write_entry(card_of(folder / "mine.json", VERSIONS[1]), VERSIONS[1])


def test_entries_of_before_load_and_are_replaced(tmp_path: Path) -> None:
    card = before_hashes(tmp_path)
    assert versions_in(tmp_path) == {0.0} and weights_file(card) == tmp_path / "mine.safetensors"
    (tmp_path / "mine-0123456789ab.safetensors").write_bytes(b"of nobody knows whom")
    (tmp_path / "mine-other.safetensors").write_bytes(b"somebody else's")
    write_card(tmp_path / "mine-ab0123456789.json", b"another entry")
    (tmp_path / "mine-ab0123456789.safetensors").write_bytes(b"another entry")
    others = {path.name for path in tmp_path.iterdir() if path.name.startswith("mine-")}
    assert len(others) == 4
    write_entry(card_of(tmp_path / "mine.json", VERSIONS[1]), VERSIONS[1])
    weights = weights_file(read_card(tmp_path / "mine.json"))
    assert {path.name for path in tmp_path.iterdir()} == others | {"mine.json", weights.name}
    assert card_beside(weights) == read_card(tmp_path / "mine.json") and versions_in(tmp_path) == {1.0}
    with pytest.raises(InputError, match="mine-0123456789ab.safetensors: no longer matches its card"):
        card_beside(tmp_path / "mine-0123456789ab.safetensors")


STRANGERS = {"mine-0123456789ab.safetensors": b"a copy", "minestrone.json": b"{}", ".mine.json.orig": b"notes"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_publishing_refuses_names_that_files_of_no_card_have(tmp_path: Path) -> None:
    new = card_of(tmp_path / "mine.json", VERSIONS[1])
    for name, content in (("mine.json", b'{"title": "my notes"}'), (f"mine-{new.sha256[:12]}.safetensors", b"mine")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"^{tmp_path / name}: ") as caught:
            write_entry(new, VERSIONS[1])
        assert "\n" not in str(caught.value) and contents(tmp_path) == {name: content}
        (tmp_path / name).unlink()
    (tmp_path / f"mine-{new.sha256[:12]}.safetensors").write_bytes(VERSIONS[1])  # as a killed publication leaves it
    (tmp_path / ".mine-0123456789ab.safetensors.0123abcd.lreid").write_bytes(b"half of an earlier one")
    write_entry(new, VERSIONS[1])
    assert versions_in(tmp_path) == {1.0} and len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("first", ["before hashes", "published"])
def test_publishing_deletes_the_weights_of_the_card_in_place_alone(tmp_path: Path, first: str) -> None:
    strangers = dict(STRANGERS)
    before(tmp_path, first)
    if first == "published":
        strangers["mine.safetensors"] = b"exported by hand"
    for name, content in strangers.items():
        (tmp_path / name).write_bytes(content)
    card = card_of(tmp_path / "mine.json", VERSIONS[2])
    write_entry(card, VERSIONS[2])
    found = contents(tmp_path)
    assert found.pop(f"mine-{card.sha256[:12]}.safetensors") == VERSIONS[2] and found.pop("mine.json")
    assert found == strangers


def test_an_entry_of_another_version_of_lreid_is_replaced(tmp_path: Path) -> None:
    before_hashes(tmp_path)
    keys = json.loads((tmp_path / "mine.json").read_text())
    del keys["title"]
    (tmp_path / "mine.json").write_text(json.dumps(keys | {"later": 1}))
    write_entry(card_of(tmp_path / "mine.json", VERSIONS[2]), VERSIONS[2])
    assert versions_in(tmp_path) == {2.0} and len(os.listdir(tmp_path)) == 2


def test_reading_deletes_nothing(tmp_path: Path, cache: Path) -> None:
    card = before_hashes(tmp_path)
    write_entry(card_of(tmp_path / "mine.json", VERSIONS[1]), VERSIONS[1])
    strangers = STRANGERS | {"mine.safetensors": VERSIONS[0], ".mine.json.0123abcd.lreid": b"left over"}
    for name, content in strangers.items():
        (tmp_path / name).write_bytes(content)
    there = contents(tmp_path)
    versions_in(tmp_path)
    card_beside(weights_file(read_card(tmp_path / "mine.json")))
    assert contents(tmp_path) == there
    file = cache / f"mine-{card.sha256[:12]}.safetensors"
    cache.mkdir()
    file.write_bytes(b"another file")
    (tmp_path / "far").mkdir()
    (tmp_path / "there").write_bytes(VERSIONS[0])
    far = write_card(tmp_path / "far" / "mine.json", VERSIONS[0], url=(tmp_path / "there").as_uri())
    with pytest.raises(InputError, match=f"^{file}: "):
        weights_file(far)
    assert file.read_bytes() == b"another file"


def test_a_folder_of_cards_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_hashes(tmp_path)
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    assert "mine" in {card.name for card in cards()}

    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(InputError, match="cannot be listed"):
        cards()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["before hashes", "published"])
def test_publishing_again_is_one_step(tmp_path: Path, first: str) -> None:
    """Whatever call fails, the entry is the one before or the new one, and so it stays when read.

    When it is published once more, only weights that no card names any more may stay besides. Power cuts are below,
    and tests/survival kills the command.
    """
    for number in range(100):
        folder = tmp_path / str(number)
        before(folder, first)
        for name, content in STRANGERS.items():
            (folder / name).write_bytes(content)
        old, names, told = versions_in(folder), set(os.listdir(folder)), ""
        with DiskFaults(folder, number, ("EIO", "ENOSPC")[number % 2]).patched() as faults:
            try:
                write_entry(card_of(folder / "mine.json", VERSIONS[2]), VERSIONS[2])
            except InputError as error:
                told = str(error)
        assert versions_in(folder) == (old if told and "done, but" not in told else {2.0})
        write_entry(card_of(folder / "mine.json", VERSIONS[2]), VERSIONS[2])
        assert versions_in(folder) == {2.0} and not leftovers(folder)
        left = set(os.listdir(folder)) - {"mine.json", weights_file(read_card(folder / "mine.json")).name}
        assert STRANGERS.keys() <= left <= names
        assert all((folder / name).read_bytes() == content for name, content in STRANGERS.items())
        if not faults.failed:
            assert left == STRANGERS.keys() and not told
            break
    assert 15 < number < 99


@pytest.mark.parametrize("first", ["before hashes", "published"])
def test_a_power_cut_leaves_an_entry_that_is_whole(tmp_path: Path, first: str) -> None:
    folder = tmp_path / "disk"
    before(folder, first)
    (old,) = versions_in(folder)
    disk = Disk(folder)
    with disk.recording():
        write_entry(card_of(folder / "mine.json", VERSIONS[2]), VERSIONS[2])
    found = set()
    for number, (over, state) in enumerate(disk.every_state()):
        disk.restore(state, tmp_path / str(number))
        (version,) = versions_in(tmp_path / str(number))
        found.add(version)
        assert not over or version == 2.0
    assert found == {old, 2.0}


@pytest.mark.slow
def test_an_entry_can_be_read_while_it_is_published_again_and_again(tmp_path: Path) -> None:
    before_hashes(tmp_path)

    def publish() -> None:
        for turn in range(24):
            write_entry(card_of(tmp_path / "mine.json", VERSIONS[turn % 3]), VERSIONS[turn % 3])

    def read() -> None:
        while not (tmp_path / "over").exists():
            _, state = read_entry(read_card(tmp_path / "mine.json"))
            assert VERSIONS[int(state["a"][0])] == safetensors.torch.save(state)

    publishers, readers = [fork_process(publish) for _ in range(2)], [fork_process(read) for _ in range(2)]
    assert [wait_for_exit(pid) for pid in publishers] == [0, 0]
    (tmp_path / "over").touch()
    assert [wait_for_exit(pid) for pid in readers] == [0, 0]
    (tmp_path / "over").unlink()
    assert versions_in(tmp_path) <= {0.0, 1.0, 2.0} and len(os.listdir(tmp_path)) == 2  # nothing was killed
