"""Exit status and the one line of bad input."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from lreid.apps.cli import COMMANDS, run_tool
from lreid.errors import InputError, Stopped


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
        (KeyboardInterrupt(), 130, "\ntool.py: interrupted\n"),
        (Stopped(15), 143, "\ntool.py: stopped by SIGTERM; all is saved, give the same command again to go on\n"),
    ],
)
def test_status_and_message(
    error: BaseException | None,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["tool.py"])
    assert run_tool(argparse.ArgumentParser(prog="tool.py"), tool_that(error)) == status
    assert capsys.readouterr().err == message


def test_names_do_not_command_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor do bytes that are no text end a command that has done its work."""

    def tool(args: argparse.Namespace) -> None:
        print("caf\udce9 \x1b[31m\u202eann\tis\nhere")

    monkeypatch.setattr("sys.argv", ["tool.py"])
    assert run_tool(argparse.ArgumentParser(), tool) == 0
    assert capsys.readouterr().out == "caf\\udce9 \\x1b[31m\\u202eann\tis\nhere\n"


def test_bugs_and_debug_show_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["tool.py"])
    with pytest.raises(ZeroDivisionError):
        run_tool(argparse.ArgumentParser(), tool_that(ZeroDivisionError()))
    monkeypatch.setattr("sys.argv", ["tool.py", "--debug"])
    with pytest.raises(InputError):
        run_tool(argparse.ArgumentParser(), tool_that(InputError("a")))


def test_debug_may_follow_a_subcommand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def parser() -> argparse.ArgumentParser:
        top = argparse.ArgumentParser(prog="tool.py")
        top.add_subparsers(required=True).add_parser("info").add_argument("file")
        return top

    for arguments in (["--debug", "info", "a"], ["info", "--debug", "a"], ["info", "a", "--debug"]):
        monkeypatch.setattr("sys.argv", ["tool.py", *arguments])
        with pytest.raises(InputError):
            run_tool(parser(), tool_that(InputError("a")))
    monkeypatch.setattr("sys.argv", ["tool.py", "info", "a", "--debug", "--other"])
    with pytest.raises(SystemExit):
        run_tool(parser(), tool_that(None))
    assert "unrecognized arguments: --other" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    """As with ``tools/zoo.py list | head -1``."""
    code = """
import argparse
from lreid.apps.cli import run_tool
raise SystemExit(run_tool(argparse.ArgumentParser(), lambda args: print("line\\n" * 100000)))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 141


def lreid(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "lreid", *words], capture_output=True, text=True, timeout=300)


def test_help_needs_no_package_but_lreid() -> None:
    """That of no command: torch alone takes more than a second to load."""
    code = """
import contextlib, sys
before = set(sys.modules)
import lreid
from lreid.apps.cli import COMMANDS, main, run_command
sys.argv[1:] = []
main()
for name in COMMANDS:
    with contextlib.suppress(SystemExit):
        run_command(name, ["--help"])
loaded = {name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names}
print(*loaded, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    arguments = {"", ".apps", ".apps.cli", ".apps.arguments", *(f".apps.arguments.{name}" for name in COMMANDS)}
    assert set(done.stderr.split()) == {f"lreid{name}" for name in arguments | {".errors"}}
    assert all(f"  {name:8} {what}\n" in done.stdout for name, what in COMMANDS.items())
    assert done.stdout.count("usage: ") == 1 + len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_option(name: str, repository: Path) -> None:
    command = importlib.import_module(f"lreid.apps.arguments.{name}")
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
    door = repository / "tools" / f"{'datasets' if name == 'data' else name}.py"
    assert f'run_command("{name}")' in door.read_text()


@pytest.mark.slow
def test_an_unknown_command_and_bad_input_are_told_under_the_name_that_was_typed() -> None:
    done = lreid("tarin")
    assert done.returncode == 2
    assert done.stderr == "lreid: tarin: no such command; the nearest is train, --help lists all\n"
    done = lreid("data", "check", "folder:gone")
    assert done.returncode == 2 and done.stderr.startswith("lreid data: ") and "gone" in done.stderr
