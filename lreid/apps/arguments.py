"""What all commands share: options, and checks of their values before torch is imported, which takes seconds.

The library repeats these checks, because programs can use it without a command line. ``--help`` needs no package but
lreid, so the checks import what they need when they run.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lreid.errors import InputError, naming_keys

if TYPE_CHECKING:
    from lreid.config_keys import Config

ELSEWHERE = ("hub:", "milvus:")  # prefixes of models and galleries that are not files
DEVICE = "device of the computation: auto, cpu, cuda, cuda:1 …"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated options: ``--epoch`` is an error, whose message suggests ``--epochs``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the words; an unknown option is an error here, also in the parser of a subcommand."""
        # argparse itself reports missing arguments first, and an unknown option without the names of the subcommand.
        words = takewhile("--".__ne__, sys.argv[1:] if args is None else args)
        names = [name for word in words if (name := word.partition("=")[0]).startswith("--") and " " not in name]
        allowed = {*self._option_string_actions, "--debug"}
        if self._subparsers is None and (unknown := [name for name in names if name not in allowed]):
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error as one line, with the nearest name for a mistyped one, and exit with status 2."""
        kind, _, word = message.partition(": ")
        nearest: list[str] = []
        if kind == "unrecognized arguments":
            nearest = get_close_matches(word.split()[0], self._option_string_actions, n=1)
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


def flag(parser: Any, name: str, about: str) -> None:
    """Add an option without a value; the value of the argument is True if the option is given."""
    parser.add_argument(name, action="store_true", help=about)


def subcommand(commands: Any, run: Callable[[argparse.Namespace], Any], what: str) -> argparse.ArgumentParser:
    """Add the subcommand of a function, which has its name after an underscore; the function is ``args.run_command``.

    Args:
        what: meaning of the subcommand.
    """
    parser: argparse.ArgumentParser = commands.add_parser(run.__name__.strip("_").replace("_", "-"), help=what)
    parser.set_defaults(run_command=run)
    return parser


def add_config(parser: argparse.ArgumentParser, what: str, pairs: str = "config keys with their values") -> None:
    """Add ``--config``, a list of files, and ``overrides``, a list of ``KEY VALUE`` pairs.

    Args:
        what: meaning of the files.
        pairs: meaning of the ``KEY VALUE`` pairs.
    """
    files = f"{what}; repeat the option for more files; a later file overrides earlier files"
    option(parser, "--config FILE", files, [], type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help=f"{pairs}, such as TRAIN.LR 1e-4")


def add_imports(parser: argparse.ArgumentParser) -> None:
    """Add ``--import``, the names of plug-ins, which are imported before the command runs."""
    what = "module, or file MODULE.py, that registers your methods, metrics …; repeat the option for more"
    option(parser, "--import MODULE", what, [], dest="imports")


def split_pairs(words: Sequence[str], start: int = 0) -> tuple[list[str], list[str]]:
    """Separate the values of an option that takes several from the ``KEY VALUE`` pairs after them.

    Args:
        words: words that argparse took for values of the option.
        start: number of values that may look like a key.
    """
    from lreid.config_keys import is_key

    end = next((place for place in range(start, len(words)) if is_key(words[place])), len(words))
    return [*words[:end]], [*words[end:]]


def require_device(device: str | None) -> None:
    """Require that ``--device``, if given, is the name of a device."""
    from lreid.utils.rules import device_fault

    if device and (fault := device_fault(device)):
        raise InputError(f"--device is {device!r}; {fault}")


def checked_config(files: Sequence[Path], overrides: Sequence[str]) -> "Config":
    """Read config files and ``KEY VALUE`` pairs, and require that the method and all values are valid."""
    from lreid.config import check_values, load_config
    from lreid.methods import method_class, method_names

    cfg = load_config(files, overrides, report=False)
    if cfg.METHOD.NAME not in method_names():
        with naming_keys("METHOD"):
            method_class(cfg.METHOD.NAME)
    check_values(cfg)
    if cfg.DATA.PATTERN:
        require_pattern("DATA.PATTERN", cfg.DATA.PATTERN)
    return cfg


def require_pattern(name: str, pattern: str) -> None:
    """Require that the value of the option or config key ``name`` is a pattern of image paths."""
    from lreid.data.listing import Pattern  # rarely needed

    with naming_keys(pattern=name):
        Pattern(pattern)


def require_path(path: str | Path | None, advice: str = "check the path") -> None:
    """Require that a file or folder exists, if it is given and its address is not outside the file system."""
    if path and not str(path).startswith(ELSEWHERE):
        try:
            os.stat(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file or folder; {advice}") from None


def require_model(source: str | Path | None) -> None:
    """Require that a model, if it is given, is an entry of the zoo, or an undamaged checkpoint or model file."""
    from lreid import zoo
    from lreid.utils.reading import compare_checksums, raise_if_unreadable, require_regular

    if source is None:
        return
    name = str(source)
    if zoo.is_entry(name) and not name.startswith(ELSEWHERE):
        zoo.find(name)
        return
    require_path(name)
    require_regular(name)
    if not os.path.isfile(name) or name.endswith(".onnx"):
        return
    try:
        if name.endswith(".safetensors"):
            from safetensors import safe_open

            zoo.card_beside(Path(name))
            with safe_open(name, "numpy"):
                pass
        else:
            compare_checksums(name, legacy=False)
    except Exception as error:  # damage shows in many kinds of exceptions
        raise_if_unreadable(error, name)
        raise InputError(f"{name}: damaged, or not a model ({error}); use one of lreid train or lreid zoo") from None
