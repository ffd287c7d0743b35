"""Run the console command ``lreid``: list the commands, define their common options, set exit statuses."""

import argparse
import contextlib
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TextIO

from lreid import __version__
from lreid.errors import InputError, Stopped, raise_if_out_of_memory

LONGEST = 2000  # maximum number of characters of an error message

COMMANDS = {  # each has a module in lreid.apps.arguments, and one in lreid.apps that is imported only to run it
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
REMOVED = {  # by command, words that earlier versions accepted, with the advice that the error message gives
    ("data", "--sheet"): "check prints every fault; open the folder to see its images",
    ("data", "render"): "python tools/render in a source checkout renders people",
    ("search", "--share"): "use reindex to extract the features of a gallery's images with a new model",
    ("search", "--through"): "use reindex to extract the features of a gallery's images with a new model",
    ("search", "--adapt-norm gallery"): "--adapt-norm features standardises features by camera",
    ("search", "--adapt-norm camera"): "--adapt-norm features standardises features by camera",
    ("zoo", "threshold"): "publish measures a model's threshold",
    ("test", "--transfer"): "--cross-model searches the old galleries without changing them",
    ("test", "--adapt-norm gallery"): "--adapt-norm features standardises features by camera",
    ("test", "--adapt-norm camera"): "--adapt-norm features standardises features by camera",
}
HELP = f"""usage: lreid COMMAND ...

Lifelong person and vehicle re-identification.

commands:
{chr(10).join(f"  {name:8} {what}" for name, what in COMMANDS.items())}

examples:
  lreid train --out runs/first SEED 1
  lreid test --checkpoint zoo:people --query my/queries --gallery my/gallery
  lreid search build people.gallery my/images --checkpoint zoo:people

lreid COMMAND --help shows the options of a command, lreid --version shows the version."""


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit status, see :func:`run_tool`."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in COMMANDS:
        return run_command(name, words, prog=f"lreid {name}")
    return _printing("lreid", lambda: _without_command(name))


def _without_command(word: str) -> int:
    """Handle a first word that is not a command, such as ``--help``, and return the exit status."""
    if word in ("-h", "--help"):
        print(HELP)
    elif word in ("-V", "--version", "version"):
        print(f"lreid {__version__}")
    else:
        nearest = get_close_matches(word, COMMANDS, n=1, cutoff=0.0)[0]
        print(
            f"lreid: {one_line(word)}: no such command; the nearest name is {nearest}; lreid --help lists all",
            file=sys.stderr,
        )
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
    options = [word for each in words for word in (each.split("=", 1) if each.startswith("--") else [each])]
    for word in [*words[:1], *filter(lambda each: each.startswith("--"), options), *map(" ".join, pairwise(options))]:
        if instead := REMOVED.get((name, word)):
            print(f"{prog or f'lreid {name}'}: {word}: was removed; {instead}", file=sys.stderr)
            return 2
    if sys.platform == "win32" and name not in ON_WINDOWS:
        reason = "needs Linux or macOS, for their locks, signals and renaming; run it in WSL 2"
        print(f"{prog or f'lreid {name}'}: lreid {name} {reason}", file=sys.stderr)
        return 2
    return run_tool(parser_of(name, prog), partial(_run, name), words)


def _run(name: str, args: argparse.Namespace) -> int | None:
    import_module("lreid.apps.early").refuse(name, args)
    import_module("lreid.classification")  # registers its data sets, which a config or the command line may name
    status: int | None = import_module(f"lreid.apps.{name}").run(args)
    return status


def parser_of(name: str, prog: str | None) -> argparse.ArgumentParser:
    """Return the parser of one of ``COMMANDS``, for a program of the name ``prog``."""
    arguments = import_module(f"lreid.apps.arguments.{name}")
    parser = _Parser(prog=prog, description=arguments.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser without abbreviated options: ``--epoch`` is an error, whose message suggests ``--epochs``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        kind, _, word = message.partition(": ")
        nearest: list[str] = []
        if kind == "unrecognized arguments":
            nearest = get_close_matches(word.partition("=")[0].split()[0], self._option_string_actions, n=1)
        elif choice := re.search(r"invalid choice: '(.+?)' \(choose from (.*)\)", message):
            nearest = get_close_matches(choice[1], re.findall(r"[\w-]+", choice[2]), n=1)
        message += "".join(f"; the nearest name is {each}" for each in nearest)
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help lists what is allowed\n")


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
    """Run a command, and return an exit status even if its output cannot be written.

    Characters that the encoding of the terminal lacks are printed as escapes. A closed stream is replaced by
    ``/dev/null``. Errors in writing to standard error are ignored. If writing to standard output fails, the exit status
    is 2, or 141 if the reader closed the pipe.
    """
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null(descriptor))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    output: Any = _Printable(sys.stdout)
    errors: Any = _Lossy(sys.stderr)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            try:
                return command()
            finally:  # also if argparse exits
                output.flush()
        except BrokenPipeError:  # the reader has closed the output, as head does
            _discard(output)
            return 141
        except _Unwritable as error:
            _discard(output)
            print(f"{prog}: standard output cannot be written ({error}); write it to another place", file=sys.stderr)
            return 2


def _null(descriptor: int) -> TextIO:
    """Open ``/dev/null`` in place of a closed stream, so that no other file gets its descriptor."""
    with contextlib.suppress(OSError):
        os.fstat(descriptor)  # succeeds if another file already has the descriptor
        return open(os.devnull, "w", encoding="utf-8")
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _discard(stream: Any) -> None:
    """Redirect a stream to ``/dev/null``, so that Python raises no error when it flushes the stream at exit."""
    with contextlib.suppress(OSError):  # raised if the stream is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def one_line(message: str) -> str:
    r"""Return a message as one short line, in which line ends and terminal codes of names and values are replaced.

    Bytes of file names that cannot be decoded are printed as ``\udcff``.
    """
    message = message.encode(errors="backslashreplace").decode()
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"
    return " ".join("".join(each if each.isprintable() else " " for each in message).split())


def printable(text: str) -> str:
    r"""Return text for a terminal, in which unprintable characters such as terminal codes are escapes like ``\x1b``."""
    return "".join(
        each if each.isprintable() or each in "\n\r\t" else each.encode("unicode_escape").decode() for each in text
    )


class _Unwritable(Exception):
    """Writing to standard output failed; the message gives the reason."""


class _Printable:
    """A stream that escapes unprintable characters, so that names cannot send codes to the terminal."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with self._errors():
            self.stream.write(printable(text))
        return len(text)

    def flush(self) -> None:
        with self._errors():
            self.stream.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _Unwritable(error.strerror) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Lossy(_Printable):
    """A stream that ignores errors in writing and does not escape terminal codes, which progress bars use."""

    def write(self, text: str) -> int:
        with self._errors():
            self.stream.write(text)
        return len(text)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            _discard(self.stream)


def option(parser: Any, words: str, about: str, default: Any = None, **settings: Any) -> None:
    """Add an option that takes a value.

    Args:
        parser: a parser, or a group of options.
        words: the option and the name of its value, such as ``--top K``.
        about: meaning of the option; the help adds the default value.
        default: value if the option is not given, which also determines its type; with ``[]``, the option may be
            repeated.
        settings: further arguments of :meth:`argparse.ArgumentParser.add_argument`.
    """
    name, _, metavar = words.partition(" ")
    if default == [] and "nargs" not in settings:
        settings["action"] = "append"
    elif default and "default:" not in about:
        about += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    if default is not None and not isinstance(default, list):
        settings.setdefault("type", type(default))
    parser.add_argument(name, default=default, metavar=metavar or None, help=about, **settings)


def add_config(parser: argparse.ArgumentParser, what: str, pairs: str = "config keys with their values") -> None:
    """Add ``--config``, a list of files, and ``overrides``, a list of ``KEY VALUE`` pairs.

    Args:
        what: meaning of the files.
        pairs: meaning of the ``KEY VALUE`` pairs.
    """
    option(
        parser,
        "--config FILE",
        f"{what}; repeat the option for more files; a later file overrides earlier files",
        [],
        type=Path,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help=f"{pairs}, such as TRAIN.LR 1e-4")
