"""Exceptions for bad input: the input is wrong, not the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals

MOST_WORDS = 160  # characters of a library's message that are shown


class InputError(Exception):
    """Bad input: a file, a key or a value that the user can fix.

    The message is one line that names the file or key, says what is wrong with it and what to do.
    The command line tools print it without a traceback and end with exit status 2.
    """


class NotConfirmed(InputError):
    """A change that was made, which the disk does not confirm to be lasting; the message says "done, but"."""


class NewerFormat(InputError):
    """A file that a later version of lreid wrote, which is neither damaged nor to be replaced."""


class OutOfMemory(InputError):
    """Memory, or what the system allows of it, ran out: the input may be whole."""


# What libraries say of it in errors of other kinds: torch, CUDA, cuBLAS and cuDNN, C++, the loader of Linux.
NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|not enough memory|ALLOC_FAILED|bad_alloc|"
    r"can't start new thread|failed to map segment|Unable to allocate",
    re.IGNORECASE,
)


def refuse_out_of_memory(
    error: BaseException, where: object = "", remedy: str = "close other programs and try again"
) -> None:
    """To be called with an error before it is taken for damage of a file, or for a mistake.

    Raises:
        OutOfMemory: the error says that memory ran out.
    """
    if isinstance(error, OutOfMemory):
        raise error
    words = " ".join(str(error).split())
    if isinstance(error, MemoryError) or NO_MEMORY.search(words):
        if len(words) > MOST_WORDS:
            words = words[:MOST_WORDS].rpartition(". ")[0] or words[:MOST_WORDS]  # whole sentences
        beginning, reason = f"{where}: " if where else "", words or type(error).__name__
        raise OutOfMemory(f"{beginning}memory ran out ({reason}); {remedy}") from None


class ArgumentError(InputError):
    """An argument of a function or class that is wrong; the message begins with its name.

    The library knows nothing of config keys: :func:`naming_keys` names them instead of arguments.

    Args:
        argument: its name, as in ``temperature``.
        fault: the rest of the sentence, as in ``is -1; it must be above 0``.
    """

    def __init__(self, argument: str, fault: str) -> None:
        super().__init__(f"{argument} {fault}")
        self.argument, self.fault = argument, fault


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 task``, ``2 tasks``, ``2 identities``, ``2 boxes``."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("ty", "ry")):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x', 'tch', 'sh')) else 's'}"


def require(condition: bool, argument: str, value: object, rule: str) -> None:
    """Checks an argument.

    Raises:
        ArgumentError: the condition does not hold.
    """
    if not condition:
        raise ArgumentError(argument, f"is {value!r}; it must be {rule}")


@contextmanager
def naming_keys(group: str = "", **keys: str) -> Iterator[None]:
    """Put around a call, or a function, whose arguments come from a config or a command line: its errors name the keys.

    The library speaks of its arguments: an :class:`ArgumentError` begins with one, and what a message says to do is
    written as in Python, ``skip_bad=True``. Here that becomes ``DATA.SKIP_BAD_IMAGES True``, or ``--skip-bad``.

    Args:
        group: group of config keys; an argument ``temperature`` of an ArgumentError is ``GROUP.TEMPERATURE``. Without,
            only those in ``keys`` are renamed.
        keys: full keys, or options, of arguments that are called otherwise.

    Raises:
        InputError: instead of an :class:`ArgumentError`; other errors with the renamed arguments.
    """

    def renamed(argument: re.Match[str]) -> str:
        key, value = keys[argument[1]], argument[2].strip("'")
        return key if "--" in key and value == "True" else f"{key} {value}"

    try:
        yield
    except InputError as error:
        if isinstance(error, ArgumentError) and (key := keys.get(error.argument) or (group and _key(group, error))):
            error = InputError(f"{key} {error.fault}")
        if keys:
            error.args = (re.sub(rf"\b({'|'.join(keys)})=('[^']*'|\w+)", renamed, str(error)),)
        raise error from None


def _key(group: str, error: ArgumentError) -> str:
    return f"{group}.{error.argument.upper()}"


class Stopped(BaseException):
    """A signal ended the run after it had saved where it was.

    The command line tools print one line and end with exit status 128 + the signal's number, as shells count it. No
    Exception, as KeyboardInterrupt is none: who catches whatever damage raises must not take it for damage.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by {Signals(signal).name}")
        self.signal, self.status = signal, 128 + signal
