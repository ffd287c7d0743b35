"""Messages name Python arguments in the library, and config keys and options in commands; lack of memory."""

import ast
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lreid.config import ARGUMENTS
from lreid.config_keys import GROUPS, KEYS
from lreid.errors import (
    ArgumentError,
    InputError,
    NotConfirmed,
    OutOfMemory,
    counted,
    naming_keys,
    raise_if_out_of_memory,
    rounded_up,
)

KEY = re.compile(rf"\b({'|'.join(filter(None, GROUPS))})\.[A-Z][A-Z_]+|^DEVICE ")
# Rooms that know the config, and files whose messages are about one.
KNOWING = {"apps", "build.py", "config.py", "config_keys.py", "report", "results", "training"}
ABOUT_CONFIGS = {"data/inventory.py", "loading.py", "zoo/card.py", "zoo/catalogue.py", "zoo/hosted.py"}


def test_no_score_below_a_threshold_passes_its_text() -> None:
    for threshold in np.random.default_rng(0).uniform(-1, 1, 200).astype(np.float32).tolist():
        assert threshold <= float(rounded_up(threshold)) <= threshold + 1.1e-6
    texts = ("0.348", "0.348"), ("0.5843", "0.5843"), ("-0.1", "-0.1"), ("0", "0"), ("0.34799999", "0.348")
    assert all(rounded_up(float(number)) == text for number, text in texts)


@pytest.mark.parametrize(
    ("message", "renamed"),
    [
        ("a.png: damaged; set skip_bad=True", "a.png: damaged; set DATA.SKIP_BAD_IMAGES True"),
        ("set cameras='apart', or workers=0", "set BENCHMARK.CAMERAS apart, or DATA.WORKERS 0"),
        ("continue with resume=True", "continue with --resume"),
        ("my_skip_bad=True, other=1, workers", "my_skip_bad=True, other=1, workers"),
    ],
)
def test_advice_names_keys_and_options(message: str, renamed: str) -> None:
    with pytest.raises(InputError) as raised, naming_keys(**ARGUMENTS):
        raise InputError(message)
    assert str(raised.value) == renamed


def test_arguments_become_keys() -> None:
    for group, keys, message in (
        ("EVAL", {}, "EVAL.DEVICE is x"),
        ("EVAL", {"device": "DEVICE"}, "DEVICE is x"),
        ("", {"device": "--device"}, "--device is x"),
        ("", {"other": "OTHER"}, "device is x"),
    ):
        with pytest.raises(InputError) as raised, naming_keys(group, **keys):
            raise ArgumentError("device", "is x")
        assert str(raised.value) == message


def test_nearest_argument_becomes_a_key() -> None:
    for group, message in (("METHOD", "METHOD.RATTE is x; .* METHOD.RATE"), ("", "ratte is x; .* rate")):
        with pytest.raises(InputError, match=message), naming_keys(group):
            raise ArgumentError("ratte", "is x", "rate")


def test_errors_keep_their_kind() -> None:
    @naming_keys("DATA", **ARGUMENTS)
    def confirm() -> None:
        raise NotConfirmed("done, but skip_bad=True")

    for _ in range(2):  # a function may be called again
        with pytest.raises(NotConfirmed, match="^done, but DATA.SKIP_BAD_IMAGES True$"):
            confirm()


def test_keys_of_arguments_exist() -> None:
    assert {key for key in ARGUMENTS.values() if not key.startswith("--")} <= KEYS.keys()


def texts(file: Path) -> Iterator[str]:
    """All strings of a file except docstrings."""
    tree = ast.parse(file.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_messages_of_the_library_name_no_config_key(repository: Path) -> None:
    package = repository / "lreid"
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        if path.parts[0] not in KNOWING and path.as_posix() not in ABOUT_CONFIGS:
            assert not [text for text in texts(file) if " " in text and KEY.search(text)], path


def raised_by(function: Callable[[], object]) -> Exception:
    with pytest.raises((MemoryError, RuntimeError)) as error:
        function()
    return error.value


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        raised_by(lambda: np.ones(2**55)),
        raised_by(lambda: torch.ones(2**50)),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has a capacity of"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
)
def test_lack_of_memory_is_one_line(error: Exception) -> None:
    with pytest.raises(OutOfMemory, match="^a.pt: ") as raised:
        raise_if_out_of_memory(error, "a.pt")
    assert "\n" not in str(raised.value)
    with pytest.raises(OutOfMemory, match=re.escape(str(raised.value))):  # unchanged, not wrapped again
        raise_if_out_of_memory(raised.value, "b.pt")


def test_other_errors_are_ignored() -> None:
    for error in (RuntimeError("size mismatch"), OSError(errno.ENOSPC, "No space left on device"), ValueError()):
        raise_if_out_of_memory(error)


@pytest.mark.parametrize(
    ("noun", "several"),
    [("task", "tasks"), ("identity", "identities"), ("query", "queries"), ("class", "classes"), ("epoch", "epochs")],
)
def test_plural_of_nouns(noun: str, several: str) -> None:
    assert [counted(count, noun) for count in (0, 1, 2)] == [f"0 {several}", f"1 {noun}", f"2 {several}"]
