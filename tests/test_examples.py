"""The examples run, and say what they should."""

import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

import lreid
from lreid import methods
from lreid.apps.cli import run_command
from lreid.config_keys import LOGGERS, OPTIMIZERS
from lreid.data import datasets
from lreid.errors import InputError
from lreid.models import backbones
from lreid.results import METRICS, content


@pytest.fixture
def run(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[str, dict]]]:
    """What an example prints, and its variables. Names that it registers are gone afterwards."""
    monkeypatch.setattr(methods, "_registered", {})
    monkeypatch.setattr(datasets, "_registered", {})
    monkeypatch.setattr(backbones, "_registered", {})
    monkeypatch.setattr(content, "_registered", {**content._registered})
    registries = (METRICS, [*METRICS]), (LOGGERS, {**LOGGERS}), (OPTIMIZERS, {**OPTIMIZERS})

    def call(name: str, *arguments: str) -> tuple[str, dict]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        variables = runpy.run_path(str(repository / "examples" / name), run_name="__main__")
        return capsys.readouterr().out, variables

    yield call
    METRICS[:] = registries[0][1]
    for registry, before in registries[1:]:
        registry.clear()
        registry.update(before)


def numbers(pattern: str, text: str) -> list[float]:
    """The groups of the only place that a pattern fits."""
    (found,) = re.findall(pattern, text)
    return [float(number) for number in ([found] if isinstance(found, str) else found)]


def test_every_example_is_tested_and_has_its_command(repository: Path) -> None:
    examples = sorted((repository / "examples").glob("*.py"))
    tested = Path(__file__).read_text(encoding="utf-8")
    for example in examples:
        assert f'run("{example.name}")' in tested
        assert f"python examples/{example.name}" in example.read_text(encoding="utf-8")
    assert examples


def test_model_of_people_links_all_six_people_of_the_video(repository: Path) -> None:
    gallery, new = (sorted((repository / "examples/people" / part).glob("*/*.jpg")) for part in ("images", "new"))
    assert len(gallery) == len(new) == 18 and not {path.read_bytes() for path in gallery} & {
        path.read_bytes() for path in new
    }
    model = lreid.load_model("zoo:people")
    queries, images = (model.extract(paths, normalize=True) for paths in (new, gallery))
    nearest = (queries @ images.T).argmax(1)
    assert [gallery[index].parent.name for index in nearest] == [path.parent.name for path in new]


def test_the_names_of_the_package() -> None:
    assert set(lreid.__all__) == {
        "CropEmbedder",
        "Gallery",
        "compare",
        "evaluate",
        "fingerprint",
        "load_model",
        "train",
    }
    assert set(lreid.__all__) <= set(dir(lreid))  # before they are loaded, as in a new interpreter
    assert all(callable(getattr(lreid, name)) for name in lreid.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", lreid.__version__)
    with pytest.raises(AttributeError, match="extract_all"):
        lreid.extract_all  # noqa: B018


def test_extract_and_search(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("extract_and_search.py")
    assert "90 images in the gallery, 256 numbers each" in said
    right, of = numbers(r"same person for (\d+) of (\d+) new images", said)
    assert of == 40 and right >= 36  # of twenty people and ten others: one or two by chance
    gallery, model = variables["gallery"], variables["model"]
    features = model.extract(variables["known_paths"])
    again = gallery.search(features, 1, model=lreid.fingerprint(model))
    assert again.paths[:, 0].tolist() == list(variables["known_paths"])
    assert said.splitlines()[-1].startswith("synthetic:plaza/8/1000/1/0: unknown")


@pytest.mark.slow
def test_notebook_prints_its_saved_output(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Except numbers, which differ between processors, and of a training the lines after its settings."""
    monkeypatch.chdir(tmp_path)
    variables: dict = {}
    for cell in json.loads((repository / "examples/first_hour.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if source.startswith("!lreid"):
            command = (
                source.removeprefix("!lreid ")
                .removesuffix("2>&1 | cat")
                .replace("--epochs 10", "--epochs 2")
                .replace("\\\n", " ")
            )
            name, *words = shlex.split(command)
            assert run_command(name, words) == 0
        else:
            exec(source, variables)
        printed = "".join(line for each in cell["outputs"] for line in each.get("text", []))
        texts = [capfd.readouterr().out, printed]
        if source.startswith("!"):
            texts = [text.replace("\r", "").partition("\n\n")[0] for text in texts]
        lines = [re.sub(r"[-+\d.]+|\s+", " ", text) for text in texts]
        assert lines[0].strip() == lines[1].strip(), source
    assert variables["right"] >= 36 and variables["taken"].mean() < 0.4 < variables["found"].size
    assert len(variables["table"]) == 3 * len(variables["queries"]) == 120


def test_evaluate_features(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("evaluate_features.py")
    mean, rank1, rank5 = numbers(r"^mAP ([\d.]+), Rank-1 ([\d.]+), Rank-5 ([\d.]+)", said)
    (easy,) = numbers(r"mAP ([\d.]+) with images of the same camera", said)
    (old,) = numbers(r"mAP ([\d.]+) with the trapezoidal", said)
    (reranked,) = numbers(r"mAP ([\d.]+) after k-reciprocal", said)
    figures = [100 * lreid.evaluate(*variables["search"], camera_filter=each).mAP for each in (True, False)]
    assert [mean, easy] == pytest.approx(figures, abs=0.051)
    assert old < mean < easy and mean < reranked and rank1 <= rank5 <= 100


@pytest.mark.slow
def test_own_method(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_method.py")
    printed = re.findall(r"mAP ([\d.]+) after the first task, ([\d.]+) after the second", said)
    plain, own = variables["runs"]["dmml_ft"], variables["runs"]["stay_near"]
    assert printed == [tuple(f"{row[0]:.1f}" for row in results["mAP"]) for results in (plain, own)]
    dmml = [[entry["dmml"] for entry in results["loss_history"]] for results in (plain, own)]
    assert len(dmml[0]) == len(dmml[1]) == 10  # epochs of both tasks
    assert dmml[0][:5] == dmml[1][:5] and plain["mAP"][0] == own["mAP"][0]  # nothing to stay near to
    assert dmml[0][6:] != dmml[1][6:]  # held back by the second term
    assert said.count("dmml ") == 2 and numbers(r"near ([\d.]+)", said)[0] > 0
    assert "stay_near" in methods.method_names()


def test_registered_method_replaces_no_file() -> None:
    with pytest.raises(InputError, match="dwopp"):
        methods.register("dwopp")(methods.Method)


@pytest.mark.slow
def test_own_dataset(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_dataset.py")
    assert "96 images to learn, 16 queries, 32 in the gallery" in said
    assert re.findall(r"after (shop ./2): mAP", said) == ["shop 1/2", "shop 2/2"]
    results = variables["results"]
    assert results["galleries"][0]["valid_queries"] == 16
    assert results["mAP"][-1][0] > 12.5  # by chance: a fair share of eight people


@pytest.mark.slow
def test_own_backbone(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_backbone.py")
    assert re.findall(r"after (plaza ./2): mAP", said) == ["plaza 1/2", "plaza 2/2"]
    assert "2 images, 64 numbers each" in said
    assert variables["results"]["config"]["MODEL.BACKBONE"] == "patches"
    assert variables["results"]["mAP"][0][0] > 10  # by chance: some 7 among twenty people


@pytest.mark.slow
def test_own_loop(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_loop.py")
    assert re.findall(r"after (\w+): (\w+) mAP", said) == list(product(("plaza", "station"), repeat=2))
    assert re.findall(r"^    (.*)", said, re.M)[0].startswith("dmml ") and said.count("distill ") == 1
    assert all(float(figure) > 15 for figure in re.findall(r"mAP ([\d.]+)", said))  # 12 by chance
    assert variables["sampler"].at == 9 and variables["method"].model.dim == 64


@pytest.mark.slow
def test_own_lightning(run: Callable[..., tuple[str, dict]]) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed; lreid does without")
    said, variables = run("own_lightning.py")
    assert re.findall(r"after (\w+): (\w+) mAP", said) == list(product(("plaza", "station"), repeat=2))
    terms = [re.findall(r"[a-z]+", line) for line in re.findall(r"^    (.*)", said, re.M)]
    assert terms == [["softmax", "triplet"], ["softmax", "triplet", "distill"]]
    assert all(float(figure) > 15 for figure in re.findall(r"mAP ([\d.]+)", said))
    assert variables["trainer"].global_step == len(variables["loader"])


@pytest.mark.slow
def test_own_plugin(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_plugin.py")
    results, logged = variables["results"], variables["logged"]
    assert results["method"] == "near" and results["galleries"][0]["queries"] == 8
    assert [numbers(f"{name} ([\\d.]+)", said)[0] for name in ("mAP", "rank")] == [
        pytest.approx(results[name][-1][0], abs=0.051) for name in ("mAP", "mrr")
    ]
    assert f"task 2: summary/seen_mrr {results['summary']['seen_mrr']}" in logged
    assert all(key in results["config"].values() for key in ("near", "patches", "sign"))


def test_own_loss(run: Callable[..., tuple[str, dict]]) -> None:
    said, variables = run("own_loss.py")
    assert "gradient is right: True" in said
    first, last = (numbers(rf"step {step}: dmml ([\d.]+), spread ([\d.]+)", said) for step in (1, 20))
    assert sum(last) < sum(first) / 4
    loss, features = variables["prototype_spread"], variables["torch"].eye(3).double()
    labels = variables["torch"].arange(3)
    assert loss(features, labels, 0.5) == 0  # orthogonal: far enough apart
    assert loss(features, labels, -0.25) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="margin is 1"):
        loss(features, labels, 1)
