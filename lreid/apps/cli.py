"""What every command line tool does around its one call."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from lreid.errors import InputError, Stopped

LONGEST = 2000  # characters of an error that are shown


def one_line(message: str) -> str:
    """A message as one line, whatever the names and values in it hold: line ends, terminal codes, megabytes."""
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"
    return " ".join("".join(each if each.isprintable() else " " for each in message).split())


def printable(text: str) -> str:
    """Text for a terminal, in lines: escape codes, bytes that are no text and the like come out as ``\\x1b``."""
    return "".join(
        each if each.isprintable() or each in "\n\r\t" else each.encode("unicode_escape").decode() for each in text
    )


class _Printable:
    """A stream that names of people and files cannot command, whatever is in them."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def run_tool(parser: argparse.ArgumentParser, tool: Callable[[argparse.Namespace], None]) -> int:
    """Parses the command line, calls the tool and turns bad input into one line and exit status 2.

    Args:
        parser: of the tool; ``--debug`` is added to it.
        tool: called with the parsed arguments.

    Returns:
        Exit status: 0, 2 for bad input, 130 when interrupted (143 by SIGTERM), 141 when nobody reads the output.
    """
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    try:
        args = parser.parse_intermixed_args()  # KEY VALUE pairs may stand between options
    except TypeError:  # argparse cannot do that where there are subcommands, which do not know --debug either
        args, rest = parser.parse_known_args()
        args.debug |= "--debug" in rest
        if rest := [each for each in rest if each != "--debug"]:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
    output: Any = _Printable(sys.stdout)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=output)
    logging.raiseExceptions = False  # a full disk is told once, by what cannot be saved, not by every line of a log
    logging.captureWarnings(True)  # of libraries, about damaged images for instance: stderr is for faults
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells which of its builds it loads
    try:
        with contextlib.redirect_stdout(output):
            tool(args)
    except InputError as error:
        if args.debug:
            raise
        print(f"{parser.prog}: {one_line(str(error))}", file=sys.stderr)
        return 2
    except Stopped as stop:
        advice = "go on with --resume" if "resume" in args else "give the same command again to go on"
        print(f"\n{parser.prog}: {stop}; all is saved, {advice}", file=sys.stderr)
        return stop.status
    except BrokenPipeError:  # who read the output has seen enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Python flushes the rest at its end
        return 141
    except KeyboardInterrupt:
        advice = "; go on from the last checkpoint with --resume" if "resume" in args else ""
        print(f"\n{parser.prog}: interrupted{advice}", file=sys.stderr)
        return 130
    return 0
