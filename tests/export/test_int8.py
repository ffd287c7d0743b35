"""The ONNX file of 8-bit integers: near the model's features, never mixed up with them, written whole or not at all."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lreid
from lreid.apps.cli import run_command
from lreid.data.rendered_set import load_rendered, read_rendered
from lreid.errors import InputError
from lreid.export.int8 import export_int8

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
MODEL = "zoo:people-small"


@pytest.mark.slow
def test_a_file_of_8_bits_costs_less_than_a_point_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    people = load_rendered("car-park-4")
    for number, image in enumerate(people.train[:60]):
        file = tmp_path / "shop" / str(image.pid) / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(read_rendered(image.path))
    assert run_command("export", [MODEL, "--out", "int8.onnx", "--int8", "shop"]) == 0
    assert "mAP of these 60 images" in capsys.readouterr().out
    plain, small = lreid.load_model(MODEL, "cpu"), lreid.load_model("int8.onnx")
    features = [model.extract([image.path for image in people.gallery], normalize=True) for model in (plain, small)]
    cosines = (features[0] * features[1]).sum(1)
    assert cosines.min() > 0.98 and not np.array_equal(*features)
    ids = [image.pid for image in people.gallery]
    scores = [100 * lreid.evaluate(rows, rows, ids, ids, range(len(ids)), range(len(ids))).mAP for rows in features]
    assert scores[0] - scores[1] < 1  # point of mAP on images that did not calibrate it
    sizes = [sum(each.numel() for each in plain.parameters()), (tmp_path / "int8.onnx").stat().st_size]
    assert sizes[1] < 2 * sizes[0]  # bytes; float32 has four per number
    gallery = lreid.Gallery.build("shop", model=plain)
    with pytest.raises(InputError, match="holds features of model"):
        gallery.search("shop", model=small)
    assert torch.equal(*(torch.from_numpy(lreid.load_model("int8.onnx").extract("shop")) for _ in range(2)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--int8", "empty"], "empty"),
        (["--int8", "missing"], "missing"),
        (["--int8", "broken"], "a.jpg"),
        (["--int8", "good", "--format", "torch"], "--int8"),
        (["--int8", "good", "--for", "boxmot"], "--int8"),
        (["--int8", "good", "--out", "file.pt2"], "file.pt2"),
    ],
)
def test_what_cannot_be_quantised_leaves_the_file(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "broken", "good"):
        Path(folder).mkdir()
    Path("broken/a.jpg").write_bytes(b"no image")
    Image.new("RGB", (32, 64)).save("good/a.jpg")
    for name in ("file.onnx", "file.pt2"):
        Path(name).write_text("generator: lreid")
    assert run_command("export", ["zoo:dwopp-synthetic-10", "--out", "file.onnx", *options]) == 2
    message = capsys.readouterr().err
    assert words in message and message.count("\n") == 1
    assert Path("file.onnx").read_text() == Path("file.pt2").read_text() == "generator: lreid"


def test_images_are_required_and_logging_is_restored(tmp_path: Path) -> None:
    model = lreid.load_model("zoo:dwopp-synthetic-10", "cpu")
    with pytest.raises(InputError, match="^images are empty"):
        export_int8(model, tmp_path / "file.onnx", [])
    Image.new("RGB", (32, 64)).save(tmp_path / "a.jpg")
    logging.disable(logging.ERROR)
    try:
        export_int8(model, tmp_path / "file.onnx", [str(tmp_path / "a.jpg")])
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(logging.NOTSET)
