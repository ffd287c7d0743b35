"""Exceptions for bad input of a user; bugs raise other exceptions."""

import difflib
import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, Decimal
from signal import Signals

MAX_REASON = 160  # maximum number of characters that are quoted from a library's message


class InputError(Exception):
    """Bad input: a file, a key or a value that the user can correct.

    The message is one line, which names the file or key, the fault and the remedy. Commands print this line without a
    traceback and end with exit status 2.
    """


class NotConfirmed(InputError):
    """A file was changed, but the disk did not confirm it; the message contains "done, but"."""


class UnknownFormat(InputError):
    """Another version of lreid wrote this file, which is not damaged and must not be replaced."""


class OutOfMemory(InputError):
    """Memory ran out while lreid read a file; the file may be intact."""


# Words in messages of torch, CUDA, cuBLAS, cuDNN, C++ and Linux's loader which say that memory ran out.
NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|not enough memory|ALLOC_FAILED|bad_alloc|"
    r"can't start new thread|failed to map segment|Unable to allocate",
    re.IGNORECASE,
)


def raise_if_out_of_memory(
    error: BaseException, where: object = "", remedy: str = "close other programs and try again"
) -> None:
    """Raise OutOfMemory if an error means that memory ran out; call this before reporting damage or a bug."""
    if isinstance(error, OutOfMemory):
        raise error
    if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
        reason = textwrap.shorten(str(error), MAX_REASON, placeholder=" ...") or type(error).__name__
        place = f"{where}: " if where else ""
        raise OutOfMemory(f"{place}memory ran out ({reason}); {remedy}") from None


class ArgumentError(InputError):
    """An invalid argument of a function or class; the message begins with the name of the argument.

    Errors of library functions name arguments, not config keys; :func:`naming_keys` replaces arguments by keys.

    Args:
        argument: name of the argument, such as ``temperature``.
        fault: rest of the message after the name, such as ``is -1; it must be above 0``.
        nearest: name of the argument that the caller may have meant.
    """

    def __init__(self, argument: str, fault: str, nearest: str = "") -> None:
        super().__init__(f"{argument} {fault}{f'; the nearest name is {nearest}' if nearest else ''}")
        self.argument, self.fault, self.nearest = argument, fault, nearest


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 task``, ``2 tasks``, ``2 identities``, ``2 boxes``."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("ty", "ry")):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x', 'tch', 'sh')) else 's'}"


def rounded_up(threshold: float) -> str:
    """Return a threshold with at most six digits; no score between the threshold and this text is accepted wrongly."""
    return f"{Decimal(repr(float(threshold))).quantize(Decimal('1e-6'), ROUND_CEILING).normalize():f}"


def short_reason(error: BaseException) -> str:
    """Return the beginning of an error's message in one line, or the name of the error's type if it has no message."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def one_line(message: str) -> str:
    r"""Return a message as one line, in which line ends and terminal codes of names and values are replaced.

    Bytes of file names that cannot be decoded are printed as ``\udcff``.
    """
    message = message.encode(errors="backslashreplace").decode()
    return " ".join("".join(each if each.isprintable() else " " for each in message).split())


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Return the most similar one of several names, for a message about an unknown name."""
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)[0]


def require(condition: bool, argument: str, value: object, rule: str) -> None:
    """Raise an ArgumentError unless an argument fulfils a condition."""
    if not condition:
        text = repr(value)
        text = text if len(text) <= 80 and "\n" not in text else f"a {type(value).__name__}"  # such as an array
        raise ArgumentError(argument, f"is {text}; it must be {rule}")


@contextmanager
def naming_keys(group: str = "", **keys: str) -> Iterator[None]:
    """Replace argument names in errors by config keys or command-line options, as a context manager or decorator.

    Without this context, an :class:`ArgumentError` begins with the name of an argument, and errors give advice in
    Python's form, such as ``skip_bad=True``. Inside this context, the advice ``skip_bad=True`` becomes
    ``DATA.SKIP_BAD_IMAGES True`` or ``--skip-bad``.

    Args:
        group: group of config keys; in an ArgumentError, the argument ``temperature`` becomes ``GROUP.TEMPERATURE``.
            Without a group, only the arguments in ``keys`` are renamed.
        keys: full config key or command-line option for each argument whose key has a different name.
    """

    def name_of(argument: str) -> str:
        return keys.get(argument) or (f"{group}.{argument.upper()}" if group else argument)

    def advice(option: re.Match[str]) -> str:
        key, value = keys[option[1]], option[2].strip("'")
        return key if "--" in key and value == "True" else f"{key} {value}"

    try:
        yield
    except InputError as error:
        if isinstance(error, ArgumentError) and (name := name_of(error.argument)) != error.argument:
            error = InputError(str(ArgumentError(name, error.fault, error.nearest and name_of(error.nearest))))
        if keys:
            error.args = (re.sub(rf"\b({'|'.join(keys)})=('[^']*'|\w+)", advice, str(error)),)
        raise error from None


class Stopped(BaseException):
    """A signal ended the run after the run had saved its state.

    A command then prints one line and ends with the exit status 128 plus the signal's number, like a shell. Like
    KeyboardInterrupt, this class is not a subclass of Exception. Code that treats every Exception as a sign of a
    damaged file must not catch a signal.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by {Signals(signal).name}")
        self.signal, self.status = signal, 128 + signal
