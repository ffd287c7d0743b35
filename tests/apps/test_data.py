"""The command ``lreid data``: what it prints, and its exit status."""

import io
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from lreid.apps.custom import plan


@pytest.fixture
def run(lreid, tmp_path: Path):
    """Run a command of ``lreid data``."""

    def run(action: str, *arguments: str):
        return lreid("data", action, *arguments, *([] if action == "from-tracks" else ["--root", tmp_path]))

    return run


def test_list_prints_expected_folders(run, tmp_path: Path) -> None:
    status, out, _ = run("list")
    assert status == 0
    assert f"viper: expected in {tmp_path / 'viper/VIPeR'}" in out


def test_incomplete_data_set_has_status_2(run, tmp_path: Path) -> None:
    image = io.BytesIO()
    Image.new("RGB", (4, 8)).save(image, "PNG")
    with zipfile.ZipFile(tmp_path / "CUHK01.zip", "w") as archive:
        for pid in (1, 2):
            for number in (1, 2, 3, 4):
                archive.writestr(f"campus/{pid:04d}{number:03d}.png", image.getvalue())
    status, out, err = run("prepare", "cuhk01", "--archive", str(tmp_path / "CUHK01.zip"))
    assert status == 2  # a miniature is not the published set
    assert "cuhk01: train identities: 1, published 485 (484 missing)" in out
    assert err.strip().endswith("lreid data: not complete: cuhk01")
    assert run("check", "cuhk01")[0] == 2


def test_check_prints_the_choices_of_training(run, tmp_path: Path) -> None:
    for person in range(8):
        for shot in range(2):
            file = tmp_path / "shop" / f"person-{person}" / f"cam{shot}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 9)).save(file)
    status, out, _ = run("check", str(tmp_path / "shop"))
    assert status == 0
    assert out.endswith(plan(tmp_path / "shop", [], []).text + "\n")
    for file in (tmp_path / "shop").glob("person-*/cam1.png"):
        file.unlink()
    assert run("check", str(tmp_path / "shop"))[0] == 0  # nobody has two images, as in a gallery


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "dukemtmc"], "dukemtmc"),
        (["prepare", "viper"], "viper"),
        (["check", "csv:none.csv"], "none.csv"),
        (["from-tracks", "gone.mp4", "--out", "new"], "gone.mp4"),
        (["from-tracks", "gone.mp4", "--out", "new", "--every", "0"], "--every is 0.0"),
    ],
)
def test_bad_input_is_one_line(run, arguments, message) -> None:
    status, _, err = run(*arguments)
    assert status == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
