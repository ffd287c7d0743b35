"""The one exception that means "the input is wrong", not "the program is wrong"."""


class InputError(Exception):
    """Bad input: a file, a key or a value that the user can put right.

    The message is one line that names the file or key, says what is wrong with it and what to do.
    The command line tools print it without a traceback and end with exit status 2.
    """
