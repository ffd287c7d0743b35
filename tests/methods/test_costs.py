"""What a step of LSTKC and its kin costs beside fine-tuning, in operations, and what they keep of a person."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from family import DIM, model
from fusing import learn, steps_of
from synthetic_tasks import synthetic_task
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lreid.methods import Method, build_method
from lreid.models import Embedder


def operations(name: str, task: int, backbone: str, height: int = 64, **options: Any) -> float:
    """Of convolutions and products in a forward and backward pass, per pixel; tasks before have 64 x 32 pixels."""
    network = Embedder(backbone, height=64, width=32, pooling="gem", neck=name == "patch_kd")
    method = build_method(name, network, **options)
    tasks = [synthetic_task(index) for index in range(task + 1)]
    *past, present = (replace(each, records=each.records[::3]) for each in tasks)  # an image of each identity
    for each in past:
        method.begin_task(each)
        method.finish_task(each)
        method.end_task(each)
    method.begin_task(present)
    method.model.train()
    labels = 4 * task + torch.arange(2).repeat_interleave(2)
    (batch,) = steps_of(0, 1)
    pixels = torch.randint(256, (4, height, height // 2, 3), dtype=torch.uint8)
    batch = batch._replace(images=torch.randn(4, 3, height, height // 2), labels=labels, pixels=pixels)
    with FlopCounterMode(display=False) as counter:
        method.total(method.loss(batch)).backward()
    return counter.get_total_flops() / height**2


# The method, the tasks before, the network, the height of the images, and the cost over that of fine-tuning.
COSTS = [
    ("lstkc", 1, "resnet18", 64, 1.33),
    ("lstkc_pp", 1, "resnet18", 64, 1.33),
    ("lstkc_pp", 2, "resnet18", 64, 1.67),
    ("dask", 1, "resnet18", 64, 2.67),
    ("patch_kd", 1, "resnet50", 64, 1.6),
    ("dkp", 1, "resnet50_layer3", 128, 0.68),
    ("dkp_pp", 1, "resnet50_layer3", 128, 2.33 * 0.68),
]


@pytest.mark.slow
def test_number_of_forward_passes_per_step() -> None:
    """Within a tenth: a backward pass is two forward ones; PatchNet has a quarter of ResNet-50's operations.

    What a teacher adds is a share of any network. A ResNet costs the same per pixel at every size; the attention of DKP
    does not, so DKP gets 128 x 64 pixels.
    """
    base = {name: operations("fused_ft", 1, name) for name in ("resnet18", "resnet50")}
    for name, task, backbone, height, cost in COSTS:
        options = {"style_steps": 0} if name in ("dask", "dkp_pp") else {}
        found = operations(name, task, backbone, height, **options) / base[backbone.removesuffix("_layer3")]
        assert found == pytest.approx(cost, rel=0.1), name


def kept_of_people(method: Method) -> int:
    """Bytes of the tensors in the state that grow with the identities of a task, networks of the past left out."""

    def rows(state: Any, classes: set[int]) -> int:
        if isinstance(state, Tensor):
            return state.nbytes if state.ndim == 2 and len(state) in classes else 0
        return sum(rows(each, classes) for each in state.values()) if isinstance(state, dict) else 0

    state = {name: each for name, each in method.state_dict().items() if "teacher" not in name}
    return rows({name: each for name, each in state.items() if name != "old_classifier"}, {4})


@pytest.mark.parametrize(
    ("name", "vectors"),
    [("fused_ft", 1), ("lstkc", 1), ("lstkc_pp", 1), ("dask", 1), ("patch_kd", 2), ("dkp", 3), ("dkp_pp", 3)],
)
def test_stored_bytes_per_identity(name: str, vectors: int) -> None:
    """A row of each classifier, and with DKP the mean and deviation of its features: templates of people."""
    options = {"style_steps": 1, "style_batch": 2} if name in ("dask", "dkp_pp") else {}
    method = build_method(name, model(neck=name == "patch_kd"), **options)
    learn(method, 1)
    assert kept_of_people(method) == 4 * vectors * DIM * 4  # identities, float32 vectors as wide as features
    stored = method.stored(identities=4)
    assert stored["identity"] == vectors * DIM * 4
    assert stored["templates"] == (name in ("dkp", "dkp_pp"))
    assert (4.4e6 < stored["domain"] < 4.7e6) == (name in ("dask", "dkp_pp")) == bool(stored["domain"])
    network = sum(each.nbytes for each in method.model.state_dict().values())
    assert stored["networks"] >= network  # the previous one, at least


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("dmml_ft", 0), ("ida", 1), ("pass_proto", 1 + 4)])
def test_template_bytes_are_counted_per_identity(name: str, rows: int) -> None:
    """PASS has a row for each rotation, too."""
    method = build_method(name, model(neck=name == "pass_proto"))
    learn(method, 2)
    stored = method.stored(identities=8)
    expected = {"domain": 0, "identity": rows * DIM * 4, "templates": rows > 0}
    assert stored == expected | {"networks": stored["networks"]} and (stored["networks"] > 0) == (rows > 0)
