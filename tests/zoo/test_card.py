"""Cards: what is shipped, reading and writing, and finding by name."""

import json
from pathlib import Path

import pooch
import pytest
from zoo_entries import write_card

from lreid.errors import InputError
from lreid.zoo import Card, cards, find, read_card
from lreid.zoo.card import BUNDLED, RESTRICTED
from lreid.zoo.weights import weights_file

SHIPPED = cards()


@pytest.mark.parametrize("card", SHIPPED, ids=lambda card: card.name)
def test_shipped_entries_are_complete_and_small(card: Card) -> None:
    assert card.weights.stat().st_size == card.bytes < 8_000_000 and not card.url
    assert pooch.file_hash(str(card.weights)) == card.sha256
    if card.file.parent == RESTRICTED:
        assert card.licence == "research-only"
    else:
        assert card.file.parent == BUNDLED and "no real people" in card.trained_on
        assert card.licence == ("Apache-2.0" if card.name in ("people", "vehicles") else "MIT")  # that of the start


def test_every_file_belongs_to_a_card() -> None:
    files = {*BUNDLED.iterdir(), *RESTRICTED.iterdir()} - {RESTRICTED}
    assert files == {file for card in SHIPPED for file in (card.file, card.weights)}


def test_weights_that_no_wheel_contains_are_in_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lreid.zoo.weights.RESTRICTED", tmp_path)
    card = write_card(tmp_path / "mine.json", b"")
    with pytest.raises(InputError, match=f"{card.weights.name}.*lreid/weights/"):
        weights_file(card)


def test_a_card_reads_back_the_same(tmp_path: Path) -> None:
    card = write_card(tmp_path / "mine.json", b"", url="https://a/b", mirrors=["file:///c", "http://d"])
    assert read_card(card.file) == card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, "seed is '0', not int"),
        ({"neck": 1}, "neck is 1, not bool"),
        ({"name": "other"}, "is the card of 'other'"),
        ({"sha256": "0" * 63}, "sha256 must be 64"),
        ({"colour": "red"}, "colour is unknown"),
        ({"dim": None}, "dim is a NoneType, not int"),
    ],
)
def test_invalid_cards_are_refused(tmp_path: Path, change: dict, message: str) -> None:
    file = write_card(tmp_path / "mine.json", b"").file
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=f"mine.json: .*{message}"):
        read_card(file)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_files_without_keys_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(InputError, match="mine.json: "):
        find(str(tmp_path / "mine.json"))


def test_entries_are_found_by_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("dwopp-synthetic-10").file == BUNDLED / "dwopp-synthetic-10.json"
    with pytest.raises(InputError, match="zoo:dwop-synthetic-1: .*dwopp-synthetic-10"):
        find("dwop-synthetic-1")
    with pytest.raises(InputError, match="gone.json: no such card"):
        find(str(tmp_path / "gone.json"))

    own = write_card(tmp_path / "dwopp-synthetic-10.json", b"")
    write_card(tmp_path / "mine.json", b"")
    assert find(str(own.file)) == own
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    assert find("dwopp-synthetic-10") == own and find("mine").file == tmp_path / "mine.json"
    names = [card.name for card in cards()]
    assert names == sorted({card.name for card in SHIPPED} | {"mine"})
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="LREID_ZOO_CARDS .*gone: no such folder"):
        cards()
