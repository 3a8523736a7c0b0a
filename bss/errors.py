"""The one exception that a person's mistake raises."""


class InputError(ValueError):
    """Bad input, told in one line: the field, its value, what is expected, how to fix it.

    The command line prints the message and exits with status 2; nothing else catches it.
    """
