"""Run the console command ``lreid``: list the commands, run one of them, set the exit status."""

import argparse
import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from lreid import __version__
from lreid.apps.arguments import Parser
from lreid.errors import InputError, Stopped, nearest_name, one_line, raise_if_out_of_memory

COMMANDS = {  # each has a module in lreid.apps with the functions add_arguments and run
    "train": "train a lifelong method task by task, on a benchmark or on your images",
    "test": "test trained models: a table of metrics and a page of ranked images",
    "search": "build a gallery of your images and search it",
    "link": "link tracklets of several cameras to identities",
    "serve": "serve a gallery over HTTP, with a search page",
    "report": "compare runs in a table and on HTML pages",
    "sweep": "train all combinations of methods, benchmarks, seeds and config values",
    "data": "list, check and prepare data sets",
    "zoo": "list, download, verify and publish trained models",
    "export": "export a model to one file for other programs",
}
ON_WINDOWS = ("data", "zoo")  # commands for Windows, too, because they neither replace open files nor use POSIX signals
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # errors of a full or failing standard output
HELP = Path(__file__).with_suffix(".md")  # the text around the list of commands


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit status, see :func:`run_tool`."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in COMMANDS:
        return run_command(name, words, prog=f"lreid {name}")
    return _printing("lreid", lambda: _without_command(name))


def _without_command(word: str) -> int:
    """Handle a first word that is not a command, such as ``--help``, and return the exit status."""
    if word in ("-h", "--help"):
        commands = "\n".join(f"  {name:8} {what}" for name, what in COMMANDS.items())
        print(HELP.read_text(encoding="utf-8").format(commands=commands), end="")
    elif word in ("-V", "--version", "version"):
        print(f"lreid {__version__}")
    else:
        nearest = nearest_name(word, COMMANDS)
        print(f"lreid: {one_line(word)}: no such command; the nearest is {nearest}; see lreid --help", file=sys.stderr)
        return 2
    return 0


def run_command(name: str, words: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run one of the commands in ``COMMANDS``.

    Args:
        words: arguments of the command, or None for those in ``sys.argv``.
        prog: name of the program in usage and messages, or None for the file name in ``sys.argv``.

    Returns:
        Exit status, see :func:`run_tool`.
    """
    words = sys.argv[1:] if words is None else words
    if sys.platform == "win32" and name not in ON_WINDOWS:
        reason = "needs Linux or macOS, for their locks, signals and renaming; run it in WSL 2"
        print(f"{prog or f'lreid {name}'}: lreid {name} {reason}", file=sys.stderr)
        return 2

    def run(args: argparse.Namespace) -> int | None:
        from lreid.utils.extras import import_plugins  # here, because help needs no other module

        args.words = words
        import_plugins(getattr(args, "imports", ()))
        import_module("lreid.classification")  # registers its data sets, which a config or the command line may name
        status: int | None = import_module(f"lreid.apps.{name}").run(args)
        return status

    return run_tool(parser_of(name, prog), run, words)


def parser_of(name: str, prog: str | None) -> argparse.ArgumentParser:
    """Return the parser of one of ``COMMANDS``, for a program of the name ``prog``."""
    command = import_module(f"lreid.apps.{name}")
    parser = Parser(prog=prog, description=command.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_arguments(parser)
    return parser


def run_tool(
    parser: argparse.ArgumentParser,
    tool: Callable[[argparse.Namespace], int | None],
    words: Sequence[str] | None = None,
) -> int:
    """Parse the command line and call the tool; for bad input, print one line and return exit status 2.

    Args:
        parser: parser of the tool, to which this function adds ``--debug``.
        tool: function that gets the parsed arguments and returns the exit status, where None means 0.
        words: the arguments, or None for those in ``sys.argv``.

    Returns:
        Exit status of the tool; 2 for bad input; 130, 143 or 129 if SIGINT, SIGTERM or SIGHUP stopped it; 141 if the
        output pipe is closed. An error message that contains "done, but" means that a change was made before the error.
    """
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return _printing(parser.prog, lambda: _run_tool(parser, tool, words))


def _run_tool(
    parser: argparse.ArgumentParser, tool: Callable[[argparse.Namespace], int | None], words: Sequence[str] | None
) -> int:
    try:
        args = parser.parse_intermixed_args(words)  # allows KEY VALUE pairs between options
    except TypeError:  # argparse cannot intermix words for parsers with subcommands
        args, rest = parser.parse_known_args(words)
        args.debug |= "--debug" in rest
        if rest := [each for each in rest if each != "--debug"]:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # Report a full disk once, for the file that cannot be saved, and not for every log line.
    logging.raiseExceptions = False
    logging.captureWarnings(True)  # log warnings of libraries, for instance about damaged images, as lreid's own
    logging.getLogger("faiss").setLevel(logging.WARNING)  # otherwise faiss logs which build it loads
    try:
        try:
            return tool(args) or 0
        except Exception as error:
            if not args.debug:
                raise_if_out_of_memory(error)
                if isinstance(error, OSError) and isinstance(error.filename, str | bytes | os.PathLike):
                    name = os.fsdecode(error.filename)
                    advice = "check that it exists and that you may access it"
                    raise InputError(f"{name}: {error.strerror}; {advice}") from None
            raise
    except InputError as error:
        if args.debug:
            raise
        print(f"{parser.prog}: {one_line(str(error))}", file=sys.stderr)
        return 2
    except Stopped as stop:
        again = "run the same command again to continue"
        advice = f"continue with --resume --out {args.out}" if "resume" in args else again
        print(f"\n{parser.prog}: {stop}; everything is saved; {advice}", file=sys.stderr)
        return stop.status
    except KeyboardInterrupt:
        advice = "; pass --resume to continue from the last checkpoint" if "resume" in args else ""
        print(f"\n{parser.prog}: interrupted{advice}", file=sys.stderr)
        return 130


def _printing(prog: str, command: Callable[[], int]) -> int:
    """Run a command, and return an exit status even if standard output is closed, full or of a narrow encoding."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the stream is closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return command()
        finally:  # also if argparse exits
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the output, as head does
        _discard_output()
        return 141
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _discard_output()
        print(f"{prog}: standard output cannot be written ({error.strerror}); write it elsewhere", file=sys.stderr)
        return 2


def _discard_output() -> None:
    """Redirect standard output to ``/dev/null``, so that Python raises no error when it flushes the stream at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
