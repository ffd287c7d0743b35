"""Models as trackers load them: the features of the model for crops prepared as each tool does, and by the tools."""

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import timm
import tiny  # noqa: F401 (the network "few")
import torch

import lreid
from lreid.config import load_config
from lreid.errors import InputError
from lreid.export import export_for
from lreid.models import Embedder

HEIGHT, WIDTH = 32, 16
CROPS = [np.random.default_rng(seed).integers(0, 256, (40 + seed, 20, 3), dtype=np.uint8) for seed in range(3)]  # BGR
IMAGENET = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
MISSING = "not installed; pip install --no-deps %s into an environment of its own"


def network(name: str = "few", **more) -> Embedder:
    """One whose normalisation is not ImageNet's, and whose BatchNorms are not those of a new network."""
    torch.manual_seed(0)
    size = {"height": HEIGHT, "width": WIDTH, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}
    model = Embedder(name, **size | more)
    for layer in model.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 2.0)
    return model.eval()


def written(tool: str, model: Embedder, out: Path) -> Path:
    assert export_for(tool, model, out, config=load_config().dump(), source="runs/x/task-01.pt", opset=18) < 1e-4
    return out


def close(features: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> None:
    """Up to their lengths, which trackers make 1."""
    units = [np.asarray(each) / np.linalg.norm(each, axis=1, keepdims=True) for each in (features, expected)]
    np.testing.assert_allclose(*units, rtol=0, atol=tolerance)


def resized(height: int, width: int) -> list[np.ndarray]:
    """Crops in RGB by OpenCV's bilinear filter, as BoxMOT resizes."""
    return [cv2.resize(crop, (width, height), interpolation=cv2.INTER_LINEAR)[..., ::-1] for crop in CROPS]


def answer(file: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(["output0"], {"images": images.astype(np.float32)})[0]


@pytest.fixture(scope="module")
def boxmot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("boxmot", network(neck=True), tmp_path_factory.mktemp("files") / "mine.onnx")


@pytest.fixture(scope="module")
def ultralytics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("ultralytics", network(neck=True), tmp_path_factory.mktemp("files") / "mine.onnx")


@pytest.mark.slow
def test_boxmot_normalises_outside_by_imagenet(boxmot: Path) -> None:
    images = np.stack(resized(HEIGHT, WIDTH))
    normalised = ((images / 255 - IMAGENET[0]) / IMAGENET[1]).transpose(0, 3, 1, 2)
    close(answer(boxmot, normalised), network(neck=True).extract(images.copy()))
    (taken,) = onnx.load(boxmot).graph.input
    batch, *size = taken.type.tensor_type.shape.dim
    assert batch.dim_param and [each.dim_value for each in size] == [3, HEIGHT, WIDTH]
    assert np.allclose(answer(boxmot, normalised[:1]), answer(boxmot, normalised)[:1], atol=1e-5)


@pytest.mark.slow
def test_ultralytics_gives_squares_in_0_to_1(ultralytics: Path) -> None:
    squares = np.stack(resized(HEIGHT, HEIGHT))
    features = answer(ultralytics, squares.transpose(0, 3, 1, 2) / 255)
    halves = squares.reshape(3, HEIGHT, WIDTH, 2, 3).mean(3)  # bilinear, to half the width
    model = network(neck=True)
    normalised = (torch.from_numpy(halves).permute(0, 3, 1, 2).float() - model.mean) / model.std
    close(features, model.extract(normalised))


@pytest.mark.slow
def test_cards_describe_the_model_and_its_training(boxmot: Path, tmp_path: Path) -> None:
    card = boxmot.with_name("mine.onnx.md").read_text()
    for part in ("# mine\n", "for boxmot", "`task-01.pt`", "few, 32 x 16 pixels", "mean 0.4 0.5 0.6", "dwopp on synth"):
        assert part in card, part
    name = "zoo:dwopp-synthetic-10"
    out = tmp_path / "mine.onnx"
    export_for("deep-sort-realtime", lreid.load_model(name), out, config="", source=name, opset=18)
    card = (tmp_path / "mine.onnx.md").read_text()
    assert "plaza mAP 79.4" in card and "no real people" in card and "* licence: MIT" in card
    assert lreid.load_model(out).dim == 256  # an .onnx file of lreid's


def test_crops_of_opencv_are_blue_first(tmp_path: Path) -> None:
    model = network()
    wanted = model.extract([crop[..., ::-1] for crop in CROPS])
    assert np.allclose(lreid.CropEmbedder(model).predict(CROPS), wanted)
    assert np.allclose(lreid.CropEmbedder(model, bgr=False).predict([crop[..., ::-1] for crop in CROPS]), wanted)
    assert lreid.CropEmbedder(model).predict([]) == []
    for bad in (CROPS[0][:0], CROPS[0][:, :0], None):
        with pytest.raises(InputError):
            lreid.CropEmbedder(model).predict([*CROPS, bad])


@pytest.mark.slow
def test_reid_supports_networks_of_timm(tmp_path: Path) -> None:
    model = network("timm:resnet10t", neck=True)
    written("reid", model, tmp_path / "mine")
    config = json.loads((tmp_path / "mine/reid_config.json").read_text())
    prepared = config["preprocessing"]
    assert config["architecture"] == "timm:resnet10t" and prepared["input_size"] == [HEIGHT, WIDTH]
    assert prepared["mean"] == [0.4, 0.5, 0.6] and prepared["interpolation"] == "bicubic"
    bare = timm.create_model("resnet10t", num_classes=0)
    bare.load_state_dict(safetensors.torch.load_file(tmp_path / "mine/weights.safetensors"))
    images = torch.randn(2, 3, HEIGHT, WIDTH)
    model.neck = torch.nn.Identity()
    close(bare.eval()(images).detach(), model.extract(images))
    assert "ReIDModel.from_pretrained" in (tmp_path / "mine/README.md").read_text()


REFUSED = [
    ("few", {"height": 64, "width": 64}, "osnet_x0_25.*timm:NAME"),
    ("timm:mobilenetv2_035", {"height": 64, "width": 64}, "timm:mobilenetv2_035.*features differ"),  # by the stride
    ("timm:resnet10t", {"height": 128, "width": 64, "pooling": "gem"}, "features differ"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_reid_refuses_other_networks(name: str, options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        written("reid", network(name, **options), tmp_path / "mine")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_bad_input_is_refused(tmp_path: Path, boxmot: Path) -> None:
    with pytest.raises(InputError, match="mine.pt: "):
        written("boxmot", network(), tmp_path / "mine.pt")
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there: already exists"):
        written("reid", network(), tmp_path / "there")
    with pytest.raises(InputError, match="mine.onnx: "):
        lreid.load_model(boxmot)


# ------------------------------------------------------------------ the tools themselves


def frame() -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """A picture (H, W, 3), BGR, with the crops in it, and where each is: left, top, right, bottom."""
    picture, boxes = np.zeros((60, 90, 3), np.uint8), []
    for place, crop in enumerate(CROPS):
        height, width = crop.shape[:2]
        picture[5 : 5 + height, 30 * place : 30 * place + width] = crop
        boxes.append((30 * place, 5, 30 * place + width, 5 + height))
    return picture, boxes


@pytest.mark.slow
def test_boxmot_loads_it(boxmot: Path) -> None:
    backend = pytest.importorskip("boxmot.reid.backends.onnx_backend", reason=MISSING % "boxmot")
    picture, boxes = frame()
    loaded = backend.ONNXBackend(boxmot, torch.device("cpu"), False)
    features = loaded.get_features(np.array(boxes, np.float32), picture)
    close(features, network(neck=True).extract(np.stack(resized(HEIGHT, WIDTH))), 2e-3)


@pytest.mark.slow
def test_ultralytics_loads_it(ultralytics: Path) -> None:
    encoder = pytest.importorskip("ultralytics.trackers.utils.reid", reason=MISSING % "ultralytics")
    picture, boxes = frame()
    centres = np.array([[(l + r) / 2, (t + b) / 2, r - l, b - t] for l, t, r, b in boxes], np.float32)  # noqa: E741
    asked = encoder.ReID(str(ultralytics), device="cpu")
    features = np.stack(asked(picture, centres))
    crops = asked._crop_detections(picture, centres)  # a little wider than the boxes
    squares = [torch.from_numpy(crop[..., ::-1].copy()).permute(2, 0, 1)[None] / 255 for crop in crops]
    resize = torch.nn.functional.interpolate
    squares = torch.cat([resize(square, (HEIGHT, HEIGHT), mode="bilinear") for square in squares])
    close(features, answer(ultralytics, squares.numpy()))


@pytest.mark.slow
def test_deep_sort_realtime_asks_it(tmp_path: Path) -> None:
    tracker = pytest.importorskip("deep_sort_realtime.deepsort_tracker", reason=MISSING % "deep-sort-realtime")
    model = lreid.load_model(written("deep-sort-realtime", network(), tmp_path / "mine.onnx"))
    tracking = tracker.DeepSort(embedder=None, n_init=1)
    tracking.embedder = lreid.CropEmbedder(model)
    picture, boxes = frame()
    found = [([l, t, r - l, b - t], 0.9, "person") for l, t, r, b in boxes]  # noqa: E741
    for _ in range(2):
        tracks = tracking.update_tracks(found, frame=picture)
    close(np.stack([track.get_feature() for track in tracks]), network().extract([crop[..., ::-1] for crop in CROPS]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchreid:osnet_x0_25", "timm:resnet10t"])
def test_reid_loads_it(name: str, tmp_path: Path) -> None:
    reid = pytest.importorskip("reid", reason=MISSING % "reid")
    model = network(name, height=64, width=32)
    folder = written("reid", model, tmp_path / "mine")
    loaded = reid.ReIDModel.from_pretrained(str(folder), device="cpu")
    picture, boxes = frame()
    detections = pytest.importorskip("supervision").Detections(xyxy=np.array(boxes, np.float32))
    close(loaded.extract_embeddings(detections, picture), model.extract([crop[..., ::-1] for crop in CROPS]), 2e-3)
