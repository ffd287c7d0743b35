"""Exceptions for bad input: the input is wrong, not the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals


class InputError(Exception):
    """Bad input: a file, a key or a value that the user can put right.

    The message is one line that names the file or key, says what is wrong with it and what to do.
    The command line tools print it without a traceback and end with exit status 2.
    """


class NotConfirmed(InputError):
    """A change that was made, which the disk does not confirm to be lasting; the message says "done, but"."""


class ArgumentError(InputError):
    """An argument of a function or class that is wrong; the message begins with its name.

    The library knows nothing of config keys. Where a config is turned into arguments, :func:`naming_keys` puts the
    key in the place of the argument.

    Args:
        argument: its name, as in ``temperature``.
        fault: the rest of the sentence, as in ``is -1; it must be above 0``.
    """

    def __init__(self, argument: str, fault: str) -> None:
        super().__init__(f"{argument} {fault}")
        self.argument, self.fault = argument, fault


def require(condition: bool, argument: str, value: object, rule: str) -> None:
    """Checks an argument.

    Args:
        condition: what must hold.
        argument: its name.
        value: that it has.
        rule: what it must be, as in ``above 0``.

    Raises:
        ArgumentError: the condition does not hold.
    """
    if not condition:
        raise ArgumentError(argument, f"is {value!r}; it must be {rule}")


@contextmanager
def naming_keys(group: str, **keys: str) -> Iterator[None]:
    """Put around a call whose arguments come from a config: its errors name the keys.

    Args:
        group: of the config; an argument ``temperature`` is ``GROUP.TEMPERATURE``.
        keys: full keys of arguments that are called otherwise.

    Raises:
        InputError: in the place of an :class:`ArgumentError`.
    """
    try:
        yield
    except ArgumentError as error:
        key = keys.get(error.argument, f"{group}.{error.argument.upper()}")
        raise InputError(f"{key} {error.fault}") from None


class Stopped(BaseException):
    """A signal ended the run after it had saved where it was.

    The command line tools print one line and end with exit status 128 + the signal's number, as shells count it. No
    Exception, as KeyboardInterrupt is none: who catches whatever damage raises must not take it for damage.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by {Signals(signal).name}")
        self.signal, self.status = signal, 128 + signal
