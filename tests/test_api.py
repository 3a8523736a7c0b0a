"""What `import bss` gives: every name, and nothing heavy before it is asked for."""

import subprocess
import sys

import bss

HEAVY = "import sys, bss; print(sorted({'jax', 'numpy', 'pandas', 'scipy'} & {*sys.modules}))"


def test_every_name_is_there():
    assert set(bss.__all__) <= set(dir(bss))
    for name in {*bss.__all__} - {"__version__"}:
        found = getattr(bss, name)
        assert callable(found) and found.__doc__, name


def test_its_version_is_text_that_is_looked_up_late():
    assert bss.__version__ == bss.version()
    assert "__version__" not in vars(bss)


def test_importing_it_loads_nothing():
    told = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
