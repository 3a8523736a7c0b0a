"""Write a report: one HTML file with inline figures that opens offline."""

import base64
import re
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from bss.errors import InputError
from bss.files import as_path, write_text
from bss.plots.style import svg
from bss.report.curves import interactive
from bss.report.results import HINT, Results, read_results
from bss.report.sections import answers, sections

TEMPLATE = "page.html.jinja"


def write_report(results: str | Path, file: str | Path) -> None:
    """Write the report of an experiment, whole or not at all.

    Args:
        results: directory with experiment.json; other files that are read: `runs.parquet`,
            `points.csv`, `fits.json`, `fit.json`, `contenders.csv` and PNG figures.
        file: the HTML file.

    Raises:
        InputError: a file of the results is damaged.

    Examples:
        >>> write_report("results/demo", "report.html")  # doctest: +SKIP
    """
    folder = as_path(results, "results")
    write_results(read_results(folder), as_path(file, "file"), str(results))


def write_results(results: Results, file: Path, source: str = "results") -> None:
    """Write the page of results that were read from a source, whole or not at all.

    Raises:
        InputError: a file of the source has no entry that the page needs.
    """
    try:
        page = _page(results)
    except (KeyError, jinja2.UndefinedError) as error:
        raise InputError(f"{source}: a file has no entry {error}; {HINT}") from None
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, page)


def _page(results: Results) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"symbols": _symbols, "drawn": lambda it, ids: Markup(svg(it, ids))}
    return environment.get_template(TEMPLATE).render(
        experiment=results.experiment,
        answers=answers(results) or results.experiment.get("conclusions", []),
        sections=sections(results),
        warnings=results.all_warnings,
        missing=results.missing,
        interactive=None if results.runs is None else interactive(results.runs),
        pictures={n: base64.b64encode(png).decode() for n, png in results.pictures.items()},
    )


def _symbols(text: str) -> Markup:
    """Return text with the indices of B_opt, S_min, c_K, ... as subscripts."""
    return Markup(re.sub(r"\b([A-Zc])_(\w+)", r"\1<sub>\2</sub>", str(escape(text))))
