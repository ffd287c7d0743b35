"""The one exception that means "the input is wrong", not "the program is wrong"."""

from signal import Signals


class InputError(Exception):
    """Bad input: a file, a key or a value that the user can put right.

    The message is one line that names the file or key, says what is wrong with it and what to do.
    The command line tools print it without a traceback and end with exit status 2.
    """


class Stopped(BaseException):
    """A signal ended the run after it had saved where it was.

    The command line tools print one line and end with exit status 128 + the signal's number, as shells count it. No
    Exception, as KeyboardInterrupt is none: who catches whatever damage raises must not take it for damage.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by {Signals(signal).name}")
        self.signal, self.status = signal, 128 + signal
