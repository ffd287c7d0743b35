"""Files of tensors hold no code, and as many numbers as they say."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lreid.checkpoint import load_checkpoint
from lreid.errors import InputError
from lreid.models.state_dicts import read_state_dict
from lreid.utils.reading import read_tensors


class Evil:
    """Would make a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda path: torch.save(torch.nn.Linear(2, 2), path), "torch.nn.modules.linear.Linear"),
        (lambda path: torch.save({"best": np.float64(0.9)}, path), r"numpy\S+scalar"),
        (lambda path: path.write_bytes(pickle.dumps({"model": Evil(path)})), "something"),
    ],
    ids=["module", "scalar", "pickle"],
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_nobody_is_advised_to_run_the_code_of_a_file(tmp_path: Path, write: Callable[[Path], None], named: str) -> None:
    write(tmp_path / "odd.pt")
    with pytest.raises(
        InputError, match=rf"odd.pt: cannot .* \(it contains {named} .* not read; save only the"
    ) as told:
        read_tensors(tmp_path / "odd.pt")
    assert not re.search(r"weights.only|still be loaded|\n|\x1b", str(told.value), re.IGNORECASE)


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_a_torchscript_archive_is_told_with_what_to_do(tmp_path: Path) -> None:
    network, path = torch.nn.Linear(2, 2), tmp_path / "net.pt"
    torch.jit.save(torch.jit.trace(network, torch.ones(1, 2)), path)
    with pytest.raises(InputError, match=r"^\S+net.pt: is a TorchScript archive, .*\.state_dict\(\)") as told:
        read_state_dict(path)
    assert "\n" not in str(told.value)
    torch.save(torch.jit.load(path).state_dict(), tmp_path / "weights.pt")  # as it says
    assert torch.equal(read_state_dict(tmp_path / "weights.pt")["weight"], network.weight)


@pytest.mark.parametrize("length", [0, 1, 100, 1000])
def test_a_file_cut_short_is_named(tmp_path: Path, length: int) -> None:
    path = tmp_path / "short.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="short.pt: cannot be loaded") as error:
        read_tensors(path)
    assert "\n" not in str(error.value)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone.pt: no such file"):
        read_tensors(tmp_path / "gone.pt")
    with pytest.raises(InputError, match="is a folder"):
        read_tensors(tmp_path)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="contains a list"):
        read_tensors(tmp_path / "list.pt")


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(4).expand(10**11, 4),
        torch.ones(5, dtype=torch.uint8).as_strided((10**6, 5), (0, 1)),
        torch.ones(4, device="meta"),
        torch.eye(4).to_sparse(),
    ],
)
def test_a_tensor_of_more_numbers_than_the_file_holds_is_refused(tmp_path: Path, value: torch.Tensor) -> None:
    for content in (
        {"model": {"w": value}},
        {"w": value},
        {"format": 1, "model": {}, "method": {"memory": [(value,)]}},
    ):
        torch.save(content, tmp_path / "a.pt")
        for read in (read_tensors, read_state_dict, lambda path: load_checkpoint(Path(path))):
            with pytest.raises(InputError, match="a.pt: "):
                read(tmp_path / "a.pt")


def test_views_and_shared_numbers_are_read(tmp_path: Path) -> None:
    whole = torch.arange(12.0)
    views = {"a": whole[2:5], "b": whole.view(3, 4).T, "c": whole, "d": whole[:1].expand(1, 1), "e": torch.empty(0, 9)}
    torch.save(views, tmp_path / "a.pt")
    assert all(value.equal(views[name]) for name, value in read_tensors(tmp_path / "a.pt").items())
