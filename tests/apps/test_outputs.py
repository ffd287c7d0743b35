"""No command replaces a file that lreid did not write."""

from pathlib import Path

import pytest
from PIL import Image

from lreid.apps.cli import run_command
from lreid.errors import InputError
from lreid.utils.files import require_writable, write_text

FOREIGN = {
    "search query people.gallery . --out out": ("matches.json", "matches.html"),
    "search check people.gallery --new zoo:people-small --images . --out out": ("check.json", "check.html"),
    "test --checkpoint zoo:people-small --query . --gallery . --out out": ("test.json", "ranked.html"),
    "test --gallery people.gallery --query . --out out": ("test.json",),
    "report . --html out/page.html": ("page.html",),
    "zoo page --out out/zoo.md": ("zoo.md",),
    "export zoo:people-small --out out/a.onnx": ("a.onnx",),
    "export zoo:people-small --out out/a.onnx --for boxmot": ("a.onnx.md",),
    "sweep --out out --methods dwopp": ("table.md", "table.csv", "curves.png"),
    "train --out out DEVICE cpu": ("report.html", "learning_curve.png", "log.txt", "galleries/task-01-test-1.npy"),
}


@pytest.mark.parametrize(("command", "name"), [(command, name) for command, names in FOREIGN.items() for name in names])
def test_files_that_lreid_did_not_write_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 64)).save("0001_c1.png")
    Path("people.gallery").touch()
    foreign = Path("out", name)
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    first, *words = command.split()
    assert run_command(first, words) == 2
    message = capsys.readouterr().err
    assert f"out/{name.partition('/')[0]}: " in message and message.count("\n") == 1
    assert [path for path in Path("out").rglob("*") if path.is_file() and path.name != ".lock"] == [foreign]
    assert foreign.read_text() == "mine"


def test_file_with_the_mark_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    for text in ('<meta name="generator" content="lreid">', '{"generator": "lreid"}', "<!-- generator: lreid -->"):
        write_text(file, text)
        assert file.read_text() == text
    file.write_text("mine")
    with pytest.raises(InputError, match=f"^{file}: "):
        write_text(file, text)


@pytest.mark.parametrize("name", ["n" * 246 + ".md", "n" * 256 + "/zoo.md"])
def test_names_that_are_too_long_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(InputError, match="nnn"):
        require_writable(tmp_path / name)
    require_writable(tmp_path / name[17:])
