"""The output of compiled libraries on stderr is hidden unless an error occurs."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from bss.errors import InputError


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keep from stderr what libraries write to its descriptor; an unexpected error shows it.

    Python's own stderr is as before.
    """
    with tempfile.TemporaryFile() as kept, os.fdopen(os.dup(2), "w", buffering=1) as original:
        python = sys.stderr
        if python is sys.__stderr__:
            sys.stderr = original
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except InputError:
            raise
        except BaseException:
            kept.seek(0)
            original.write(kept.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(original.fileno(), 2)
            sys.stderr = python
