"""The weights file of an entry: where it is found, and how an entry is replaced."""

import json
import os
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from disk_faults import DiskFaults
from power_cuts import Disk
from processes import fork_process, wait_for_exit
from zoo_entries import card_of, write_card

from lreid.errors import InputError
from lreid.models.state_dicts import read_safetensors
from lreid.utils.files import leftovers
from lreid.zoo import Card, card_beside, read_card, read_entry, weights_file, write_entry

CONTENT = b"weights" * 100


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LREID_ZOO_MIRROR", raising=False)
    return tmp_path / "cache"


def test_weights_next_to_the_card_need_no_download(tmp_path: Path, cache: Path) -> None:
    card = write_card(tmp_path / "mine.json", CONTENT, url="http://127.0.0.1:9/never-asked")
    card.weights.write_bytes(CONTENT)
    assert weights_file(card) == tmp_path / f"mine-{card.sha256[:12]}.safetensors" and not cache.exists()


def test_damaged_and_missing_weights(tmp_path: Path) -> None:
    card = write_card(tmp_path / "mine.json", CONTENT)
    with pytest.raises(InputError, match=f"^{card.weights}: no such file"):
        weights_file(card)
    card.weights.write_bytes(CONTENT[:-1])
    with pytest.raises(InputError, match=f"^{card.weights}: is damaged"):
        weights_file(card)


def test_mirrors_and_the_address_of_a_card_are_tried_in_order(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {place: tmp_path / place / "mine.safetensors" for place in ("home", "other")}
    url, other = (file.as_uri() for file in places.values())
    card = write_card(tmp_path / "mine.json", CONTENT, url=url, mirrors=[other])
    places["mirror"] = tmp_path / "mirror" / card.weights.name
    monkeypatch.setenv("LREID_ZOO_MIRROR", (tmp_path / "mirror").as_uri() + "/")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    for place in places.values():  # each is enough
        place.parent.mkdir()
        place.write_bytes(CONTENT)
        file = weights_file(card)
        assert file == cache / card.weights.name and file.read_bytes() == CONTENT
        assert os.listdir(cache) == [file.name]
        file.unlink()
        place.unlink()
    with pytest.raises(InputError, match=rf"mirror/{card.weights.name}: .*home/mine.*: .*other/mine") as caught:
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
    """The number of which the weights of the entry consist."""
    _, state = read_entry(read_card(folder / "mine.json"))
    return set(state["a"].tolist())


def publish(folder: Path, number: int) -> Card:
    card = card_of(folder / "mine.json", VERSIONS[number])
    write_entry(card, VERSIONS[number])
    return card


def test_a_new_version_replaces_the_weights(tmp_path: Path) -> None:
    old = publish(tmp_path, 0)
    new = publish(tmp_path, 1)
    assert set(os.listdir(tmp_path)) == {"mine.json", new.weights.name} != {"mine.json", old.weights.name}
    assert card_beside(new.weights) == read_card(tmp_path / "mine.json") and versions_in(tmp_path) == {1.0}
    for name in (old.weights.name, "mine.safetensors"):
        with pytest.raises(InputError, match=f"{name}: is not the file of its card"):
            card_beside(tmp_path / name)


STRANGERS = {"mine-0123456789ab.safetensors": b"a copy", "minestrone.json": b"{}", ".mine.json.orig": b"notes"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_publishing_replaces_no_file_that_is_not_a_card(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(b'{"title": "my notes"}')
    before = contents(tmp_path)
    with pytest.raises(InputError, match=f"^{tmp_path / 'mine.json'}: ") as caught:
        publish(tmp_path, 1)
    assert "\n" not in str(caught.value) and contents(tmp_path) == before
    (tmp_path / "mine.json").unlink()
    # A killed publication leaves the weights, or a part of them.
    card_of(tmp_path / "mine.json", VERSIONS[1]).weights.write_bytes(VERSIONS[1])
    (tmp_path / ".mine-0123456789ab.safetensors.0123abcd.lreid").write_bytes(b"half of an earlier one")
    publish(tmp_path, 1)
    assert versions_in(tmp_path) == {1.0} and len(os.listdir(tmp_path)) == 2


def test_only_the_weights_of_the_previous_card_are_deleted(tmp_path: Path) -> None:
    first = publish(tmp_path, 1)
    for name, content in STRANGERS.items():
        (tmp_path / name).write_bytes(content)
    before = contents(tmp_path)
    assert versions_in(tmp_path) == {1.0} and card_beside(weights_file(first)) == first
    assert contents(tmp_path) == before  # reading deletes nothing
    card = publish(tmp_path, 2)
    found = contents(tmp_path)
    assert found.pop(card.weights.name) == VERSIONS[2] and found.pop("mine.json")
    assert found == STRANGERS


def test_an_entry_of_another_version_of_lreid_is_replaced(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    keys = json.loads((tmp_path / "mine.json").read_text())
    del keys["title"]
    (tmp_path / "mine.json").write_text(json.dumps(keys | {"later": 1}))
    publish(tmp_path, 2)
    assert versions_in(tmp_path) == {2.0} and len(os.listdir(tmp_path)) == 2


@pytest.mark.slow
def test_publishing_is_one_step(tmp_path: Path) -> None:
    """Whatever call fails, the entry is the old or the new one, and reading it does not change that.

    When it is published once more, only weights that no card names may remain. Power cuts are below, and tests/survival
    kills the command.
    """
    for number in range(100):
        folder = tmp_path / str(number)
        publish(folder, 1)
        for name, content in STRANGERS.items():
            (folder / name).write_bytes(content)
        names, message = set(os.listdir(folder)), ""
        with DiskFaults(folder, number, ("EIO", "ENOSPC")[number % 2]).patched() as faults:
            try:
                publish(folder, 2)
            except InputError as error:
                message = str(error)
        assert versions_in(folder) == ({1.0} if message and "done, but" not in message else {2.0})
        publish(folder, 2)
        assert versions_in(folder) == {2.0} and not leftovers(folder)
        left = set(os.listdir(folder)) - {"mine.json", weights_file(read_card(folder / "mine.json")).name}
        assert STRANGERS.keys() <= left <= names
        assert all((folder / name).read_bytes() == content for name, content in STRANGERS.items())
        if not faults.failed:
            assert left == STRANGERS.keys() and not message
            break
    assert 12 < number < 99


def test_a_power_cut_leaves_a_complete_entry(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    publish(folder, 1)
    disk = Disk(folder)
    with disk.recording():
        publish(folder, 2)
    found = set()
    for number, (over, state) in enumerate(disk.every_state()):
        disk.restore(state, tmp_path / str(number))
        (version,) = versions_in(tmp_path / str(number))
        found.add(version)
        assert not over or version == 2.0
    assert found == {1.0, 2.0}


@pytest.mark.slow
def test_an_entry_can_be_read_while_it_is_published_repeatedly(tmp_path: Path) -> None:
    publish(tmp_path, 0)

    def publish_all() -> None:
        for turn in range(24):
            publish(tmp_path, turn % 3)

    def read() -> None:
        while not (tmp_path / "over").exists():
            _, state = read_entry(read_card(tmp_path / "mine.json"))
            assert VERSIONS[int(state["a"][0])] == safetensors.torch.save(state)

    publishers, readers = [fork_process(publish_all) for _ in range(2)], [fork_process(read) for _ in range(2)]
    assert [wait_for_exit(pid) for pid in publishers] == [0, 0]
    (tmp_path / "over").touch()
    assert [wait_for_exit(pid) for pid in readers] == [0, 0]
    (tmp_path / "over").unlink()
    assert versions_in(tmp_path) <= {0.0, 1.0, 2.0} and len(os.listdir(tmp_path)) == 2
