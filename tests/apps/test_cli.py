"""Exit status and the one line of bad input."""

import argparse
import importlib
import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from lreid.apps.cli import COMMANDS, ON_WINDOWS, main, run_tool
from lreid.errors import InputError, Stopped, one_line


def tool_that(error: BaseException | None) -> object:
    def tool(args: argparse.Namespace) -> None:
        if error is not None:
            raise error

    return tool


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (None, 0, ""),
        (InputError("a.yaml: is not there; name another"), 2, "tool.py: a.yaml: is not there; name another\n"),
        (MemoryError("no"), 2, "tool.py: memory ran out (no); close other programs and try again\n"),
        (PermissionError(13, "Permission denied", "photos/cam1"), 2, "tool.py: photos/cam1: Permission denied; "),
        (KeyboardInterrupt(), 130, "\ntool.py: interrupted\n"),
        (Stopped(15), 143, "\ntool.py: stopped by SIGTERM; "),
    ],
)
def test_status_and_message(
    error: BaseException | None, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool(argparse.ArgumentParser(prog="tool.py"), tool_that(error), []) == status
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == message.startswith("\n") + bool(message)


def test_names_in_errors_are_escaped() -> None:
    assert one_line("caf\udce9.jpg: \x1b gone\n") == r"caf\udce9.jpg: gone"


def test_bugs_and_debug_show_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def run(error: BaseException, *words: str) -> None:
        top = argparse.ArgumentParser(prog="tool.py")
        top.add_subparsers(required=True).add_parser("info").add_argument("file")
        run_tool(top, tool_that(error), [*words])

    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError(), "info", "a")
    for words in (["--debug", "info", "a"], ["info", "--debug", "a"], ["info", "a", "--debug"]):
        with pytest.raises(InputError):
            run(InputError("a"), *words)
    with pytest.raises(SystemExit):
        run(InputError("a"), "info", "a", "--debug", "--other")
    assert "unrecognized arguments: --other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("search qury", "query"),
        ("search build a b --kind flt", "flat"),
        ("search check g --new m.pt --images i --max-lost 1", ""),
        ("search check g --new m.pt --images i --max-lost 101%", ""),
        ("search check g --new m.pt --images i --max-fpir few", ""),
        ("train --epoch 3", "--epochs"),
        ("search build g x --engine onnx", "--device"),
        ("search query g x --tops=3", "--top"),
        ("data check x --patern p", "--pattern"),
        ("zoo publish run name --license MIT", "--licence"),
        ("link relink linked --treshold 1", "--threshold"),
        ("export zoo:people --opsets 18", "--opset"),
        ("zoo", ""),
        ("test --checkpoint run --cross-models", "--cross-model"),
    ],
)
def test_typo_is_one_line_with_the_nearest_name(words: str, nearest: str, lreid) -> None:
    status, _, text = lreid(*words.split())
    assert (status, text.count("\n")) == (2, 1)
    assert not nearest or f"nearest name is {nearest};" in text


def test_closed_pipe_has_status_141() -> None:
    """As with ``lreid zoo list | head -1``."""
    code = """
import argparse
from lreid.apps.cli import run_tool
raise SystemExit(run_tool(argparse.ArgumentParser(), lambda args: print("line\\n" * 100000)))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 141


@pytest.mark.parametrize(("output", "status"), [(">&-", 0), (">/dev/full", 2)], ids=["closed", "full"])
@pytest.mark.parametrize("errors", ["2>&-", ""], ids=["errors closed", "errors read"])
def test_closed_or_full_output_is_no_traceback(output: str, status: int, errors: str) -> None:
    code = """
import argparse, os, sys
from lreid.apps.cli import run_tool
from lreid.errors import InputError
def tool(args):
    print("figures")
    print("a note", file=sys.stderr)
    assert os.open(os.devnull, os.O_RDONLY) > 2  # no file gets the number of a stream
    if args.fail:
        raise InputError("a.yaml: bad")
parser = argparse.ArgumentParser(prog="tool")
parser.add_argument("--fail", action="store_true")
sys.exit(run_tool(parser, tool))
"""
    python = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    for words, expected in (("", status), ("--fail", 2), ("--help", 0), ("--nope", 2)):  # argparse ignores a full disk
        done = subprocess.run(f"{python} {words} {output} {errors}", shell=True, capture_output=True, text=True)
        assert done.returncode == expected, (words, done)
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
        assert ("standard output" in done.stderr) == (status == 2 and words in ("", "--fail") and not errors)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_characters_outside_the_encoding_are_escaped(encoding: str, repository: Path) -> None:
    """In the help of every command and tool, which loads no torch, in what commands print and log, and in errors."""
    code = r"""
import argparse, contextlib, logging, pathlib, runpy, sys
from lreid.apps.cli import COMMANDS, ON_WINDOWS, run_command, run_tool
from lreid.errors import InputError
for name in COMMANDS:
    with contextlib.suppress(SystemExit):
        run_command(name, ["--help"])
for tool in sorted(pathlib.Path("tools").glob("*.py")):
    sys.argv = [str(tool), "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(tool), run_name="__main__")
    heavy = {"torch", "numpy", "matplotlib", "torchvision"} & set(sys.modules)
    assert not heavy, f"{tool} loads {heavy}"
def tool(args):
    print("42.0 \u00b1 1.3 \u738b \u2026")
    logging.getLogger("lreid").info("logged \u00e9\u738b")
    raise InputError("\u00e9\u738b: bad")
sys.exit(run_tool(argparse.ArgumentParser(prog="\u00e9"), tool, []))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(repository)},
    )
    assert done.returncode == 2, done.stderr

    def shown(text: str) -> bytes:
        return text.encode(encoding, "backslashreplace")

    assert shown("42.0 \u00b1 1.3 \u738b \u2026\n") in done.stdout
    assert shown("logged \u00e9\u738b\n") in done.stdout
    assert done.stderr == shown("\u00e9: \u00e9\u738b: bad\n")
    assert done.stdout.count(b"usage: ") == len(COMMANDS) + len(list((repository / "tools").glob("*.py")))


def test_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--version", "-V", "version"):
        monkeypatch.setattr("sys.argv", ["lreid", word])
        assert not main() and capsys.readouterr().out == f"lreid {metadata.version('lreid')}\n"


def test_help_needs_no_package_but_lreid() -> None:
    """That of no command: torch alone takes more than a second to load."""
    code = """
import contextlib, sys
before = set(sys.modules)
import lreid
from lreid.apps.cli import COMMANDS, ON_WINDOWS, main, run_command
sys.argv[1:] = []
main()
for name in COMMANDS:
    with contextlib.suppress(SystemExit):
        run_command(name, ["--help"])
loaded = {name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names}
print(*loaded, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    apps = {".apps", ".apps.cli", ".apps.arguments", *(f".apps.{name}" for name in COMMANDS)}
    assert set(done.stderr.split()) == {f"lreid{name}" for name in apps | {"", ".errors"}} | {"lazy_loader"}
    assert all(f"  {name:8} {what}\n" in done.stdout for name, what in COMMANDS.items())
    assert done.stdout.count("usage: ") == 1 + len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_option(name: str) -> None:
    command = importlib.import_module(f"lreid.apps.{name}")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    found = [parser]
    for each in found:
        for action in each._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += action.choices.values()
            else:
                assert action.help, (each.prog, action.dest)
    assert f"\nlreid {name} " in command.__doc__ or f"\n    lreid {name} " in command.__doc__


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tarin"], "lreid: tarin: no such command; the nearest is train; see lreid --help\n"),
        (["data", "check", "folder:gone"], "lreid data: "),
        (["train", "--resume", "--out", "gone"], "lreid train: "),
    ],
)
def test_messages_begin_with_the_command(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lreid", *words])
    assert main() == 2
    message = capsys.readouterr().err
    assert message.startswith(line) and words[-1].removeprefix("folder:") in message


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("data check own:list.csv", "--root"),
        ("data check csv:split.csv", "--root"),
        ("data check list.csv", "--root"),
        ("search build g list.csv --checkpoint zoo:people-small", "--root"),
        ("train list.csv", "DATA.ROOT"),
        ("train BENCHMARK.TRAIN csv:split.csv --out run", "DATA.ROOT"),
        ("test --checkpoint zoo:people-small --csv split.csv", "DATA.ROOT"),
    ],
)
def test_missing_images_of_a_list_name_the_option_for_their_folder(
    command: str, option: str, lreid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("path,pid,camid\na.jpg,anna,1\nb.jpg,ben,1\n")
    (tmp_path / "split.csv").write_text("path,pid,split\na.jpg,anna,train\nb.jpg,ben,query\nc.jpg,ben,gallery\n")
    status, _, err = lreid(*command.split())
    (line,) = err.splitlines()
    assert status == 2 and "csv:2: " in line and "a.jpg" in line and f"pass {option} DIR" in line


@pytest.mark.parametrize("name", COMMANDS)
def test_windows_refuses_commands_that_need_posix(name: str, lreid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    status, out, err = lreid(name, "--help")
    if name in ON_WINDOWS:
        assert status == 0 and "usage: " in out
    else:
        assert status == 2 and f"lreid {name} needs Linux or macOS" in err and err.count("\n") == 1
