"""What `import bss` gives: every name, and nothing heavy before it is asked for."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import bss

HEAVY = "import sys, bss; print(sorted({'jax', 'numpy', 'pandas', 'scipy'} & {*sys.modules}))"


def test_every_name_is_there():
    assert dir(bss) == sorted(bss.__all__)
    for name in {*bss.__all__} - {"__version__"}:
        found = getattr(bss, name)
        assert callable(found) and found.__doc__, name


def test_every_name_has_an_example_that_runs_but_those_that_train():
    texts = {name: getattr(bss, name).__doc__ for name in {*bss.__all__} - {"__version__"}}
    assert not {name for name, text in texts.items() if ">>> " not in text}
    skipped = {name for name, text in texts.items() if "+SKIP" in text}
    assert skipped == {"sweep", "Sweep", "train", "list_runs", "write_report"}


def test_every_function_names_its_arguments_and_what_it_refuses():
    functions = {name: getattr(bss, name) for name in bss.__all__ if name != "__version__"}
    functions = {name: one for name, one in functions.items() if isinstance(one, FunctionType)}
    lacking = {name for name, one in functions.items() if "Args:" not in str(one.__doc__)}
    assert lacking == {"version"}
    lacking = {name for name, one in functions.items() if "Raises:" not in str(one.__doc__)}
    assert lacking == {"version"}


def test_its_version_is_text_that_is_looked_up_late():
    assert bss.__version__ == bss.version()
    assert "__version__" not in vars(bss)


def test_importing_it_loads_nothing():
    told = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_the_page_of_names_lists_each_once_by_task():
    file = Path(__file__).parents[1] / "docs" / "_site" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", file)
    assert spec and spec.loader
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    listed = [name for names in page.TASKS.values() for name in names]
    assert sorted(listed) == sorted({*bss.__all__} - {"__version__"})
    assert page.api().count("::: bss.") == len(listed)
