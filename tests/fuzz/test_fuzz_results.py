"""Hostile ``results.json`` files, and cards and weights of the zoo."""

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from fuzzing import assert_refused, corrupted_value, fuzz
from hypothesis import given
from hypothesis import strategies as st
from zoo_entries import write_entry

from lreid.zoo.card import weights_name

pytestmark = pytest.mark.fuzz


def report_refused(folder: Path, content: str | bytes, *, maybe: bool = False) -> str:
    """Assert that ``lreid report`` refuses a ``results.json``; with ``maybe``, it may also accept it."""
    file = folder / "results.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return assert_refused("report", folder, "--cost", named=file, maybe=maybe)


@fuzz(25)
@given(rng=st.randoms(use_true_random=False))
def test_corrupted_results_give_one_line_or_a_report(
    rng: random.Random, results: dict[str, Any], tmp_path: Path
) -> None:
    report_refused(tmp_path, json.dumps(corrupted_value(results, rng)), maybe=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mAP",), []),
        (("rank5",), [[1.0], [2.0]]),
        (("tasks",), []),
        (("mAP", 0, 0), None),
        (("galleries", 0, "first_task"), 7),
        (("galleries", 0, "kind"), "unseen"),
        (("identity_ap", "plaza", "ap"), []),
        (("summary",), {"seen_mAP": "x"}),
        (("galleries", 0), {"name": "plaza", "kind": "seen", "first_task": 0, "queries": 1}),
        (("config",), [1]),
    ],
)
def test_inconsistent_results_are_refused(path: tuple, value: Any, results: dict[str, Any], tmp_path: Path) -> None:
    inner = hostile = json.loads(json.dumps(results))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    report_refused(tmp_path, json.dumps(hostile))


@pytest.fixture
def entry(tmp_path: Path) -> tuple[Path, bytes]:
    """The path of a card, and its weights."""
    card = write_entry(tmp_path, "mine")
    return card.file, card.weights.read_bytes()


def write_weights(card: Path, content: bytes) -> Path:
    """Replace the weights of a card, and their hash in the card."""
    keys = json.loads(card.read_text())
    keys["sha256"], keys["bytes"] = hashlib.sha256(content).hexdigest(), len(content)
    card.write_text(json.dumps(keys))
    weights = card.with_name(weights_name(card.stem, keys["sha256"]))
    weights.write_bytes(content)
    return weights


def header(text: str, size: int | None = None) -> bytes:
    """A safetensors file with this header, and its length or ``size`` as the length field."""
    return struct.pack("<Q", len(text) if size is None else size) + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        header("{}"),
        header("{}", 2**63),
        header('{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4000000000000]}}'),
        header('{"a": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}') + bytes(4),
        header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}') + bytes(4),
        header('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}') + bytes(4),
    ],
    ids=range(7),
)
def test_hostile_safetensors_headers_are_refused(content: bytes, entry: tuple[Path, bytes], world: Path) -> None:
    weights = write_weights(entry[0], content)
    assert_refused("export", f"zoo:{entry[0]}", "--out", entry[0].parent / "x.onnx", named="mine")
    assert_refused("train", "--out", entry[0].parent / "out", "MODEL.WEIGHTS", weights, named="mine")
    assert not (entry[0].parent / "out").exists()
