"""What `import bss` gives: every name, and nothing heavy before it is asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import bss

HEAVY = "import sys, bss; print(sorted({'jax', 'numpy', 'pandas', 'scipy'} & {*sys.modules}))"


def test_every_name_is_there():
    body = ast.parse(Path(bss.__file__).read_text()).body
    (block,) = (line for line in body if isinstance(line, ast.If))
    lines = [line for line in block.body if isinstance(line, ast.ImportFrom)]
    imported = {name.asname or name.name for line in lines for name in line.names}
    assert sorted(bss.__all__) == sorted([*imported, "version"])  # as type checkers see them
    assert set(bss.__all__) <= set(dir(bss))
    for name in bss.__all__:
        found = getattr(bss, name)
        assert callable(found) and found.__doc__, name


def test_importing_it_loads_nothing():
    told = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
