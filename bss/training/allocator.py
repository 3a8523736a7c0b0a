"""Memory that a process keeps for the next dispatch.

XLA takes the temporaries of a program from malloc at each dispatch, and frees them at its end.
glibc gives large blocks back to the system. The next dispatch then gets new pages, which the system
has to clear. Kept blocks cost memory: the process never shrinks below its largest program.
"""

import ctypes
import os

# From malloc.h of glibc.
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_ARENA_MAX = -8
_NEVER = -1
_SETTINGS = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: _NEVER}
_NAMES = ("arena_max", "mmap_max", "trim_threshold")


def keep_freed_memory() -> bool:
    """Let malloc keep what it frees; call it before JAX starts its threads.

    All three settings are needed. With one arena, threads take large blocks from it. No block comes
    from mmap, because such a block is given back when it is freed. Nothing is trimmed.

    Returns:
        True if the settings are made; False where malloc is not glibc's, or GLIBC_TUNABLES already
        has one of them.
    """
    if any(name in os.environ.get("GLIBC_TUNABLES", "") for name in _NAMES):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - others may have a mallopt without these settings
        mallopt = libc.mallopt
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return False
    return all(mallopt(setting, value) for setting, value in _SETTINGS.items())
