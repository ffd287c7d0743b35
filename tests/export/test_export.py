"""Files for other programs give the features of the network that they were made of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from tiny import TINY, as_arguments
from torch import nn

import lreid
from lreid.config import load_config
from lreid.errors import InputError
from lreid.export import export, formats
from lreid.export.traced import TOLERANCE, ImagesToFeatures
from lreid.gallery import Gallery
from lreid.gallery.images import Extraction
from lreid.models import Embedder
from lreid.models.exported import OnnxEmbedder
from lreid.models.fingerprint import fingerprint

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 32, 16, 3), dtype=np.uint8)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def network(seed: int = 0) -> Embedder:
    """A tiny one with a neck, and BatchNorm statistics that are not those of a new network."""
    torch.manual_seed(seed)
    model = Embedder("small", height=32, width=16, mean=MEAN, std=STD)
    model.backbone, model.dim = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()), 8
    model.neck = nn.BatchNorm1d(8)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 2.0)
    return model.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network in all three forms."""
    folder = tmp_path_factory.mktemp("files")
    config = load_config([], as_arguments(TINY, {"EVAL.FLIP": True}))
    model = network().train()  # as it is within a run
    model.precision = torch.bfloat16
    differences = [
        export(model, folder / "raw.onnx", config=config.dump()),
        export(model, folder / "outside.onnx", normalise="outside", opset=20),
        export(model, folder / "raw.pt2", form="torch"),
    ]
    assert model.training and model.precision is torch.bfloat16
    assert all(0 <= difference < 1e-5 < TOLERANCE for difference in differences)
    return folder


def close(features: np.ndarray, expected: np.ndarray) -> None:
    assert features.dtype == np.float32 and features.shape == expected.shape
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raw.onnx", "outside.onnx"])
@pytest.mark.parametrize("flip", [False, True])
def test_features_of_all_kinds_of_images_are_those_of_torch(files: Path, tmp_path: Path, name: str, flip: bool) -> None:
    model, exported = network(), lreid.load_model(files / name)
    expected = model.extract(IMAGES, flip=flip)
    assert (exported.dim, exported.height, exported.width, exported.name) == (8, 32, 16, "small")
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image).save(path)
    for images in (IMAGES, list(IMAGES), paths, [str(path) for path in paths], torch.from_numpy(IMAGES)):
        close(exported.extract(images, flip=flip), expected)
    close(exported.extract(IMAGES, flip=flip, batch_size=2), expected)
    large = IMAGES[:1].repeat(3, 1).repeat(2, 2)
    close(exported.extract(large, flip=flip), model.extract(large, flip=flip))
    assert exported.extract([]).shape == (0, 8)


@pytest.mark.slow
def test_normalised_images_are_for_a_file_that_does_not_normalise(files: Path) -> None:
    model = network()
    normalised = model.normalise(torch.from_numpy(IMAGES))
    close(lreid.load_model(files / "outside.onnx").extract(normalised), model.extract(normalised))
    with pytest.raises(InputError, match="raw.onnx: takes uint8"):
        lreid.load_model(files / "raw.onnx").extract(normalised)
    with pytest.raises(InputError, match=r"outside.onnx: .*torch.float32 \(5, 3, 8, 16\)"):
        lreid.load_model(files / "outside.onnx").extract(normalised[:, :, :8])


@pytest.mark.slow
def test_other_programs_need_only_onnxruntime(files: Path) -> None:
    """numpy normalises the images by the properties of the file."""
    expected = network().extract(IMAGES)
    raw, outside = (onnxruntime.InferenceSession(str(files / f"{name}.onnx")) for name in ("raw", "outside"))
    close(raw.run(["features"], {"images": IMAGES})[0], expected)
    properties = outside.get_modelmeta().custom_metadata_map
    assert (properties["height"], properties["width"], properties["backbone"]) == ("32", "16", "small")
    assert properties["images"] == "normalised float32 (n, 3, H, W)" and properties["lreid"]
    mean, std = (np.array(json.loads(properties[key])) for key in ("mean", "std"))
    np.testing.assert_allclose([mean, std], [MEAN, STD], atol=1e-6)
    normalised = ((IMAGES / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)
    close(outside.run(["features"], {"images": normalised})[0], expected)
    opsets = [onnx.load(str(files / f"{name}.onnx")).opset_import[0].version for name in ("raw", "outside")]
    assert opsets == [18, 20]


@pytest.mark.slow
def test_torch_loads_its_format_with_the_properties(files: Path) -> None:
    extra = {"lreid.json": ""}
    module = torch.export.load(files / "raw.pt2", extra_files=extra).module()
    model = network()
    for number in (1, 5):
        with torch.no_grad():
            close(module(torch.from_numpy(IMAGES[:number])).numpy(), model.extract(IMAGES[:number]))
    assert json.loads(extra["lreid.json"])["fingerprint"] == fingerprint(model)


@pytest.mark.slow
def test_an_exported_model_searches_the_galleries_of_its_origin(files: Path) -> None:
    model, exported = network(), lreid.load_model(files / "raw.onnx")
    assert fingerprint(exported) == fingerprint(model) != fingerprint(network(seed=1))
    gallery = Gallery.build(model.extract(IMAGES), list("abcde"), model=fingerprint(model))
    matches = gallery.search(exported.extract(IMAGES), 1, model=fingerprint(exported))
    assert matches.paths[:, 0].tolist() == list("abcde")
    np.testing.assert_allclose(matches.scores, 1, atol=1e-5)


def edited(file: Path, out: Path, edit: Callable[[Any, dict[str, str]], None]) -> OnnxEmbedder:
    """A copy of a file whose graph and properties were edited."""
    model = onnx.load(str(file))
    properties = {each.key: each.value for each in model.metadata_props}
    edit(model.graph, properties)
    onnx.helper.set_model_props(model, properties)
    onnx.save(model, str(out))
    return lreid.load_model(out)


@pytest.mark.slow
def test_the_fingerprint_depends_on_everything_that_is_run(files: Path, tmp_path: Path) -> None:
    def weight(graph: Any, _: dict[str, str]) -> None:
        values = onnx.numpy_helper.to_array(graph.initializer[0]).copy()
        values.flat[0] += 1e-3
        graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, graph.initializer[0].name))

    def unsealed(graph: Any, properties: dict[str, str]) -> None:
        del properties["seal"]

    export(network(seed=1), tmp_path / "other.onnx", normalise="outside")
    other = {each.key: each.value for each in onnx.load(str(tmp_path / "other.onnx")).metadata_props}
    edits = [
        weight,
        unsealed,
        lambda _, properties: properties.update(mean="[0.5, 0.5, 0.5]"),
        lambda _, properties: properties.update(fingerprint=other["fingerprint"]),
        lambda _, properties: properties.update(other),
    ]
    origin, found = fingerprint(network()), []
    for edit in edits:
        model = edited(files / "outside.onnx", tmp_path / "edited.onnx", edit)
        found.append(fingerprint(model))
        assert len(found[-1]) == 16 and found[-1] not in (origin, other["fingerprint"])
        assert fingerprint(lreid.load_model(tmp_path / "edited.onnx")) == found[-1]
    assert len(set(found)) == len(edits) - 1  # the last two run and declare the same
    features = lreid.load_model(files / "outside.onnx").extract(IMAGES)
    gallery = Gallery.build(features, list("abcde"), model=origin)
    with pytest.raises(InputError, match="holds features of model"):
        gallery.search(features, 1, model=found[0])
    same = edited(files / "outside.onnx", tmp_path / "same.onnx", lambda _, properties: properties.update(lreid="2"))
    assert fingerprint(same) == origin


@pytest.mark.parametrize("where", ["initializer", "sparse", "attribute", "subgraph", "function"])
@pytest.mark.parametrize("swapped", [False, True])
def test_weights_in_another_file_are_refused(
    where: str, swapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol Buffers may have the fields of a message in any order (``swapped``)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(bytes(16))
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    onnx.external_data_helper.set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    graph, model = onnx.GraphProto(name="g"), onnx.ModelProto(ir_version=8)
    if where == "initializer":
        graph.initializer.append(weight)
    elif where == "sparse":
        graph.sparse_initializer.add().values.CopyFrom(weight)
    elif where == "attribute":
        graph.node.append(onnx.helper.make_node("Constant", [], ["w"], value=weight))
    elif where == "subgraph":
        inner = onnx.GraphProto(name="inner", initializer=[weight])
        graph.node.append(onnx.helper.make_node("If", ["c"], ["w"], then_branch=inner))
    else:
        nodes = [onnx.helper.make_node("Constant", [], ["w"], value=weight)]
        model.functions.append(onnx.helper.make_function("d", "f", [], ["w"], nodes, []))
    model.graph.CopyFrom(graph)
    content = model.SerializeToString()
    key, value = b"\n\x08location", b"\x12\x05w.bin"
    assert key + value in content
    with pytest.raises(InputError, match="in other files"):
        OnnxEmbedder(content.replace(key + value, value + key) if swapped else content)


@pytest.mark.slow
def test_exported_models_contain_the_config_and_cannot_be_exported_again(files: Path, tmp_path: Path) -> None:
    assert Extraction.of(files / "raw.onnx").flip
    with pytest.raises(InputError, match="outside.onnx"):
        Extraction.of(files / "outside.onnx")
    with pytest.raises(InputError, match="raw.onnx: is exported"):
        export(OnnxEmbedder(files / "raw.onnx"), tmp_path / "again.onnx")


NETWORKS = [("resnet18", "batch"), ("torchreid:osnet_x1_0", "batch")]
NORMS = [pytest.param("small", norm, marks=pytest.mark.slow) for norm in ("ibn_a+input", "ibn_b+grey")]


@pytest.mark.parametrize(("backbone", "norm"), NETWORKS + NORMS)
def test_exported_networks_compute_the_features_of_extract(backbone: str, norm: str) -> None:
    torch.manual_seed(0)
    model = Embedder(backbone, height=32, width=16, neck=True, norm=norm).eval()
    images, network = torch.from_numpy(IMAGES), ImagesToFeatures(model, raw=True)
    with torch.no_grad():
        traced = network if norm == "batch" else torch.export.export(network, (images,)).module()
        features = traced(images)
    close(features.numpy(), model.extract(IMAGES))


@pytest.mark.slow
def test_a_file_that_would_be_wrong_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.pt2"
    file.write_text("from before")
    right = formats._to_torch

    def wrong(*args: object) -> tuple[bytes, object]:
        content, exported = right(*args)
        return content, lambda images: exported(images) * wrong.factor

    monkeypatch.setattr(formats, "_to_torch", wrong)
    for wrong.factor in (1.001, float("nan")):
        with pytest.raises(InputError, match="model.pt2: not written.* (0.001|nan) "):
            export(network(), file, form="torch")
    assert file.read_text() == "from before" and list(tmp_path.iterdir()) == [file]


class Unclear(nn.Module):
    """A network with a branch that depends on the values of images, which cannot be traced."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3)) if images.sum() > 0 else images.amax((2, 3))


def test_a_network_that_cannot_be_traced_is_refused_in_one_line(tmp_path: Path) -> None:
    model = network()
    model.backbone, model.neck = Unclear(), nn.Identity()
    with pytest.raises(InputError, match="model.pt2: not written") as fault:
        export(model, tmp_path / "model.pt2", form="torch")
    assert "\n" not in str(fault.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("m.onnx", {"form": "tflite"}, "form is 'tflite'"),
        ("m.onnx", {"normalise": "no"}, "normalise is 'no'"),
        ("m.onnx", {"opset": 999}, "--opset 999"),
    ],
)
def test_invalid_options_are_named(tmp_path: Path, name: str, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        export(network(), tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def foreign(file: Path) -> None:
    """Somebody else's ONNX file."""
    kind = onnx.TensorProto.FLOAT
    value = [onnx.helper.make_tensor_value_info(name, kind, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8), file)


@pytest.mark.slow
def test_bad_files_are_named(files: Path, tmp_path: Path) -> None:
    content = (files / "raw.onnx").read_bytes()
    for name, data in (("empty", b""), ("text", b"not ONNX at all"), ("cut", content[: len(content) // 2])):
        (tmp_path / f"{name}.onnx").write_bytes(data)
        with pytest.raises(InputError, match=f"{name}.onnx: ") as fault:
            lreid.load_model(tmp_path / f"{name}.onnx")
        assert "\n" not in str(fault.value)
    foreign(tmp_path / "foreign.onnx")
    with pytest.raises(InputError, match="foreign.onnx: .*'backbone'"):
        lreid.load_model(tmp_path / "foreign.onnx")
    damage = [("height", '"tall"', "height is 'tall'"), ("mean", "[0.5]", "size 1"), ("std", "{", "Expecting")]
    for key, value, fault in damage:
        network_file = onnx.load(str(files / "raw.onnx"))
        next(each for each in network_file.metadata_props if each.key == key).value = value
        with pytest.raises(InputError, match=rf"\(.*{fault}"):
            OnnxEmbedder(network_file.SerializeToString())
    for missing, fault in ((tmp_path / "gone.onnx", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=fault):
            OnnxEmbedder(missing)
