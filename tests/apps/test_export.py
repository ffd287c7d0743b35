"""The command ``lreid export``."""

import json
from pathlib import Path

import onnx
import pytest


@pytest.mark.slow
def test_exported_model_builds_and_searches_a_gallery(in_world, world: Path) -> None:
    first, second = in_world(
        "export", "model.pt", "--out", "model.onnx"
    ).out.splitlines()  # the exporter prints nothing
    assert first.startswith("model.onnx: few, 32 x 16 pixels to 16 numbers, 0.0 MiB")
    assert second.startswith("its features differ from the model's by")
    answers = []
    for name in ("model.pt", "model.onnx"):
        assert in_world("search", "build", f"{name}.gallery", "g", "--checkpoint", name).status == 0
        assert in_world("search", "query", "model.pt.gallery", "q", "--checkpoint", name, "--out", name[6:]).status == 0
        answers.append(json.loads((world / name[6:] / "matches.json").read_text())["queries"])
    ranked = [[[match["path"] for match in query["matches"]] for query in queries] for queries in answers]
    assert ranked[0] == ranked[1] and len(ranked[0]) == 8

    model = onnx.load("model.onnx")
    weight = model.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 2, weight.name))
    onnx.save(model, "model.onnx")
    for name in ("model.pt.gallery", "model.onnx.gallery"):
        status, _, message = in_world("search", "query", name, "q", "--checkpoint", "model.onnx", "--out", "m")
        assert status == 2 and "model.onnx: " in message and message.count("\n") == 1 and not (world / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.pt", "--out", "m.onnx"), "gone.pt: "),
        (("model.pt", "--out", "m.pt2"), "m.pt2: "),
        (("model.pt", "--out", "m.onnx", "--opset", "9"), "--opset 9: "),
        (("model.pt", "--out", "model.pt/m.pt2", "--format", "torch"), "model.pt/m.pt2: "),
        (("q", "--out", "m.onnx"), "q: "),
    ],
)
def test_bad_input_is_one_line_and_no_file(in_world, world: Path, arguments: tuple[str, ...], message: str) -> None:
    status, _, error = in_world("export", *arguments)
    assert status == 2 and message in error and "Traceback" not in error
    assert not list(world.glob("m.*"))
