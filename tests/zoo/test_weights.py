"""Where the weights of an entry come from."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from entries import write_card

from lreid.errors import InputError
from lreid.zoo import read_safetensors, weights_file

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
    with pytest.raises(InputError, match=r"mine.safetensors: no such file; the weights must lie beside"):
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
    for place in ("home", "other", "mirror"):  # each is enough
        file = weights_file(card)
        assert file == cache / f"mine-{card.sha256[:12]}.safetensors" and file.read_bytes() == CONTENT
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
