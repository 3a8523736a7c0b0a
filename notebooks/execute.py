"""Runs notebooks and keeps what they show, with nothing in the file that depends on the machine.

    python notebooks/execute.py                        all of them, in place, on results/
    RUN=cpu python notebooks/execute.py notebooks/fsl_bss.ipynb

RUN=smoke|cpu|gpu makes a notebook run its experiments first, at that size.
"""

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(path: Path) -> NotebookNode:
    """The notebook with fresh outputs; its file is left as it is.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)

    def show(cell_index: int, **_: Any) -> None:
        if sys.stderr.isatty():
            where = f"{path.name}: cell {cell_index + 1} of {len(notebook.cells)}"
            print(f"\r\033[K{where}", end="\r", file=sys.stderr, flush=True)

    NotebookClient(
        notebook,
        resources={"metadata": {"path": str(path.resolve().parent)}},
        extra_arguments=["--log-level=ERROR"],
        iopub_timeout=60,  # on a busy machine outputs come late
        record_timing=False,
        on_cell_start=show,
    ).execute()
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info={"name": "python"})
    return notebook


def main(arguments: list[str]) -> None:
    """Executes the given notebooks in place, or all of them."""
    for path in map(Path, arguments) if arguments else sorted(HERE.glob("*.ipynb")):
        notebook = executed(path)
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
