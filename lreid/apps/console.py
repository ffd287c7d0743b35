"""What all commands share of the terminal: parsers and their options, and text that is safe to print."""

import argparse
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

LONGEST_MESSAGE = 2000  # maximum number of characters of an error message
DEVICE = "device of the computation: auto, cpu, cuda, cuda:1 …"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated options: ``--epoch`` is an error, whose message suggests ``--epochs``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Print the error as one line, with the nearest name for a mistyped one, and exit with status 2."""
        kind, _, word = message.partition(": ")
        nearest: list[str] = []
        if kind == "unrecognized arguments":
            nearest = get_close_matches(word.partition("=")[0].split()[0], self._option_string_actions, n=1)
        elif choice := re.search(r"invalid choice: '(.+?)' \(choose from (.*)\)", message):
            nearest = get_close_matches(choice[1], re.findall(r"[\w-]+", choice[2]), n=1)
        message += "".join(f"; the nearest name is {each}" for each in nearest)
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help lists what is allowed\n")


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
    files = f"{what}; repeat the option for more files; a later file overrides earlier files"
    option(parser, "--config FILE", files, [], type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help=f"{pairs}, such as TRAIN.LR 1e-4")


def one_line(message: str) -> str:
    r"""Return a message as one short line, in which line ends and terminal codes of names and values are replaced.

    Bytes of file names that cannot be decoded are printed as ``\udcff``.
    """
    message = message.encode(errors="backslashreplace").decode()
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"
    return " ".join("".join(each if each.isprintable() else " " for each in message).split())
