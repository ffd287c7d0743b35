"""MATLAB files of both kinds, as MATLAB would write them."""

import uuid
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io


def cells(items: list[Any] | list[list[Any]]) -> np.ndarray:
    """A cell array: a column of a list, a matrix of a list of lists."""
    rows = [item if isinstance(item, list) else [item] for item in items]
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for j, item in enumerate(row):
            array[i, j] = item
    return array


def write_old(file: Path, variables: dict[str, Any]) -> None:
    """Version 5 to 7, compressed."""
    scipy.io.savemat(file, variables, do_compression=True)


def write_v73(file: Path, variables: dict[str, Any]) -> None:
    """Version 7.3: HDF5 with every array transposed, cells as references, text as codes."""
    with h5py.File(file, "w", userblock_size=512) as content:
        for name, value in variables.items():
            _write(content, name, value)


def _write(content: h5py.File, name: str, value: Any) -> h5py.Dataset:
    if isinstance(value, str):
        return content.create_dataset(name, data=np.array([[ord(char)] for char in value], dtype=np.uint16))
    if value.dtype != object:
        if value.size == 0:  # MATLAB stores the size of what is empty
            return content.create_dataset(name, data=np.array(value.shape, dtype=np.uint64))
        return content.create_dataset(name, data=value.T)
    references = np.empty(value.shape, dtype=h5py.ref_dtype)
    for index, item in np.ndenumerate(value):
        references[index] = _write(content, f"#refs#/{uuid.uuid4()}", item).ref
    return content.create_dataset(name, data=references.T, dtype=h5py.ref_dtype)


WRITERS = {"older": write_old, "v7.3": write_v73}
