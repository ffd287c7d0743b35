"""Hostile config files, command lines and albumentations pipelines."""

import subprocess
from pathlib import Path
from unittest import mock

import pytest
import yaml
from fuzzing import HOSTILE, assert_refused, fuzz
from hypothesis import given
from hypothesis import strategies as st
from tiny import TINY

from lreid.config import leaves
from lreid.config_keys import Config
from lreid.data.transforms import load_pipeline
from lreid.errors import InputError
from lreid.training import run

pytestmark = pytest.mark.fuzz

DEFAULTS = dict(leaves(yaml.safe_load(Config().dump())))


def train_refused(folder: Path, *arguments: str, named: str | Path = "") -> str:
    """Start training up to the test images, assert that nothing was written, and return the message."""
    tiny = [str(part) for pair in TINY.items() for part in pair]
    stop = InputError(f"far enough: {named}")
    with mock.patch.object(run, "evaluator_of", side_effect=stop):
        message = assert_refused("train", "--out", folder / "out", *arguments[:2], *tiny, *arguments[2:], named=named)
    assert not (folder / "out").exists()
    return message


def config(folder: Path, content: str | bytes) -> Path:
    file = folder / "a.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@fuzz(40)
@given(key=st.sampled_from(sorted(set(DEFAULTS) - {"DEVICE"})), value=st.sampled_from(HOSTILE), twice=st.booleans())
def test_any_value_of_a_key_gives_one_line(key: str, value: object, twice: bool, tmp_path: Path) -> None:
    train_refused(tmp_path, "SEED", "0", key, str([value, value, value] if twice else value).replace("\0", ""))


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 64))


@pytest.mark.parametrize(
    "content",
    [
        "\0",
        b"\xff\xfeS",
        "[" * 600,
        LAUGHS,
        "a: &a [*a]",
        "a: &a {SEED: 1}\nTRAIN:\n  <<: *a",
        "SEED: !!bool x",
        "? [1, 2]\n: 1",
        "SEED: " + "9" * 5000,
        "TRAIN: {LR: '" + "(" * 3000 + "'}",
        "TRAIN: {LR: '" + "-" * 100_000 + "1'}",
        "METHOD: {NAME: ../x}",
        '_BASE_: "a\\0"',
        "_BASE_: ../methods",
        'BENCHMARK: {TRAIN: ["csv:a\\0"]}',
        "BENCHMARK: {NAME: ../../x}",
        "MODEL: {WEIGHTS: 'zoo:/etc/x.json'}",
        "MODEL: {WEIGHTS: /dev/null}",
    ],
    ids=range(18),
)
def test_hostile_configs_are_refused(content: str | bytes, tmp_path: Path) -> None:
    assert "far enough" not in train_refused(tmp_path, "--config", str(config(tmp_path, content)))


@pytest.mark.parametrize("tag", ["object/apply:os.system", "object/new:os.system", "name:os.system", "module:os"])
def test_tags_run_no_code(tag: str, tmp_path: Path) -> None:
    file = config(tmp_path, f"SEED: !!python/{tag} ['touch {tmp_path / 'made'}']")
    train_refused(tmp_path, "--config", str(file), named=file)
    assert not (tmp_path / "made").exists()


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert "far enough" in train_refused(tmp_path, "--config", str(config(tmp_path, b"\xef\xbb\xbfSEED: 1")))


CALL = "albumentations.core.composition.Compose"


@pytest.mark.parametrize(
    "content",
    [
        "transform: {__class_fullname__: os.system}",
        "\0",
        b"\xff\xfe",
        "[" * 600,
        f"transform: {{__class_fullname__: {CALL}, transforms: 3}}",
        "!!python/object/apply:os.system ['touch made']",
        "transform: {__class_fullname__: subprocess.run, args: [touch, made]}",
        "a: &a [*a]",
        "transform: {__class_fullname__: Lambda, image: 'os.system'}",
        f"transform: {{__class_fullname__: {CALL}, transforms: [{{__class_fullname__: HorizontalFlip, p: x}}]}}",
    ],
    ids=range(10),
)
def test_hostile_pipelines_are_refused(content: str | bytes, tmp_path: Path) -> None:
    file = config(tmp_path, content)
    with (
        mock.patch.object(subprocess, "Popen", side_effect=AssertionError("code was run")),
        pytest.raises(InputError) as error,
    ):
        load_pipeline(file)
    assert str(file) in str(error.value)
