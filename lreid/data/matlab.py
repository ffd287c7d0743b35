"""Read MATLAB files, both of version 7.3 (HDF5) and of older versions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from lreid.utils.extras import Extra
from lreid.utils.reading import naming_damage

h5py, scipy_io = Extra("h5py", "matlab"), Extra("scipy.io", "matlab")


def read_matlab(file: Path) -> dict[str, Any]:
    """Read all variables of a file older than version 7.3; structs become dicts, cells become lists or object arrays.

    Raises:
        InputError: the file is damaged, or is not a MATLAB file older than version 7.3.
    """
    with _naming(file):
        return scipy_io.loadmat(file, simplify_cells=True)


class MatlabFile:
    """Read the variables of a MATLAB file of any version one by one, with the axes in MATLAB's order.

    In a file older than version 7.3, a variable is read as a whole. In a file of version 7.3, a cell is read only by
    :meth:`value` or :meth:`text`, so the file may be larger than the memory.

        with MatlabFile(path) as content:
            cells = content["detected"]              # object array
            image = content.value(cells[0, 0])       # the value in the cell

    Raises:
        InputError: the file cannot be read.
        KeyError: the file has no variable of this name.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with _naming(file):
            self._hdf5: Any = h5py.File(file, "r") if h5py.is_hdf5(file) else None  # None: older than version 7.3

    def __enter__(self) -> MatlabFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._hdf5 is not None:
            self._hdf5.close()

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a variable by name; elements of a cell array can be passed to :meth:`value` and :meth:`text`."""
        with _naming(self._file):
            if self._hdf5 is None:
                content = scipy_io.loadmat(self._file, variable_names=[name])
            else:
                content = {name: self.value(name)} if name in self._hdf5 else {}
        return content[name]

    def value(self, cell: Any) -> np.ndarray:
        """Read the value of a cell."""
        return self._hdf5[cell][()].T if self._hdf5 is not None else cell

    def text(self, cell: Any) -> str:
        """Read the text of a cell."""
        if self._hdf5 is not None:
            return "".join(chr(code) for code in np.ravel(self.value(cell)))
        return str(np.ravel(cell)[0])


def _naming(file: Path) -> AbstractContextManager[None]:
    return naming_damage(file, "cannot be read as a MATLAB file", "unpack it from its archive again")
