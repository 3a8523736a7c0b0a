"""Make the pictures of README.md and docs/ from committed data.

`python docs/_site/pictures.py [NAME ...]` (`make pictures`) writes docs/assets/NAME.png, the dark
NAME-dark.png, and NAME.json with the labels and numbers of the picture. The picture of the
calculator needs chromium; where there is none its files are kept.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave

import bss
from bss.laws import read_fit
from bss.laws.step_time import StepTime
from bss.plots import style
from bss.plots.fits import fit_figure
from bss.plots.rates_map import rates_figure
from bss.plots.residuals import residuals_figure
from bss.plots.step_time import time_figure

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
CALCULATOR = "calculator"
DOTS = 100  # per inch
DARK = np.array([0x1E, 0x21, 0x29]) / 255  # the ground of the site's dark pages
DIGITS = 3
FEW = 15
"""Numbers of a line that are written: evenly spaced ones of a longer line."""


def batch_sizes() -> Figure:
    """Loss curves that cross, and the tokens to three losses, of the committed demo runs."""
    runs = pd.read_parquet(ROOT / "results/demo/runs.parquet")
    targets = [2.2, 1.9, 1.7]
    fit = bss.fit_es(runs, targets=targets, law="asymmetric", resamples=20)
    figure, [[curves, tokens]] = style.new_figure(3.4, columns=2)
    _state(figure, "Small batches are ahead early, larger ones later: the best batch size grows")
    shown = [1, 4, 16]
    looks = style.lined_styles(shown)
    for batch in shown:
        run = runs[(runs["batch"] == batch) & (runs["tokens"] > 20_000)]
        look = looks[batch] | {"marker": ""}
        curves.plot(run["tokens"], run["eval_loss"], label=f"batch {batch}", lw=1.6, **look)
    curves.set(xscale="log", ylim=(1.55, 2.6))
    style.tokens_axis(curves.xaxis)
    labels = {"xlabel": "tokens consumed", "ylabel": "held-out loss (nats)"}
    style.panel_title(curves, "Loss curves cross", **labels)
    curves.legend()
    measured = fit.residuals()
    batches = np.geomspace(1, 32, 60)
    for target, look in style.lined_styles(targets).items():
        rows = measured[np.isclose(measured["target_loss"], target)]
        bare = look | {"marker": ""}
        tokens.plot(batches, fit.tokens(batches, target), lw=1.4, **bare)
        marks = look | {"linestyle": "none", "label": f"loss {target:g}"}
        tokens.plot(rows["batch"], rows["measured"], ms=5, **marks)
    tokens.set(yscale="log", ylim=(75_000, 1_800_000))
    style.batch_axis(tokens.xaxis)
    style.tokens_axis(tokens.yaxis)
    labels = {"xlabel": "batch size (sequences of 64 tokens)", "ylabel": "tokens to the loss"}
    style.panel_title(tokens, "Tokens to a loss, with the fitted law", **labels)
    tokens.legend(loc="lower center", ncols=3)
    return figure


def equal_time() -> Figure:
    """Tokens and hours of the 8B example against the batch size."""
    curves = ROOT / "results/published/mlperf_llama31_8b_curves.parquet"
    fit = bss.fit_es(curves, targets=[3.3], resamples=200)
    figure = time_figure(fit, StepTime.parse("0.9 + 0.05*B"))
    _state(figure, "8B: the smallest batches need the fewest tokens, batch 42 the fewest hours")
    return figure


def rates_map() -> Figure:
    """The loss over batch size and LR in the committed fit of published runs."""
    return rates_figure(read_fit(ROOT / "bss/laws/published/steplaw_rates.json"))


def best_lr() -> Figure:
    """The best LR of published runs at one batch size, with its law."""
    runs = pd.read_csv(ROOT / "results/published/steplaw_rates.csv", comment="#")
    return fit_figure(bss.fit_lr(runs[runs["batch"] == 256]))


def residuals() -> Figure:
    """The residuals of the committed fit of published final losses."""
    return residuals_figure(read_fit(ROOT / "bss/laws/published/steplaw_dense.json"))


FIGURES: dict[str, Callable[[], Figure]] = {
    "batch_sizes": batch_sizes,
    "equal_time": equal_time,
    "rates_map": rates_map,
    "best_lr": best_lr,
    "residuals": residuals,
}


def _state(figure: Figure, message: str) -> None:
    """Put what a picture shows above it, as a sentence."""
    figure.suptitle(message, x=0.01, ha="left", fontsize=10.5, fontweight="bold")


def shown(figure: Figure) -> dict[str, Any]:
    """Return the title, the labels and the numbers of each panel of a figure."""
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    panels = [_panel(ax) for ax in figure.axes if ax.axison]
    return {"title": figure.get_suptitle(), "legend": legends, "panels": panels}


def _panel(ax: Axes) -> dict[str, Any]:
    legend = ax.get_legend()
    titles = (ax.get_title("left"), ax.get_title(), ax.get_title("right"))
    return {
        "title": " | ".join(filter(None, titles)),
        "x": ax.get_xlabel(),
        "y": ax.get_ylabel(),
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "texts": [text.get_text() for text in ax.texts],
        "lines": [[_numbers(line.get_xdata()), _numbers(line.get_ydata())] for line in ax.lines],
        "areas": [
            _numbers(one.get_array()) for one in ax.collections if one.get_array() is not None
        ],
    }


def _numbers(values: Any) -> list[float | None]:
    """Return a few of the values, to three digits."""
    every = np.ma.filled(np.ma.asarray(values, float), np.nan).ravel()
    picked = every[np.unique(np.linspace(0, len(every) - 1, min(len(every), FEW)).astype(int))]
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in picked]


def darkened(image: np.ndarray) -> np.ndarray:
    """Return a picture [height, width, 3] with light and dark exchanged and each hue kept."""
    ends = image.max(axis=-1, keepdims=True) + image.min(axis=-1, keepdims=True)
    return DARK + (1 - DARK) * np.clip(image + 1 - ends, 0, 1)


def calculator_document() -> str:
    """Return the calculator as one HTML file."""
    command = [sys.executable, str(ROOT / "docs/_site/calculator/build.py")]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        subprocess.run([*command, str(page)], check=True, cwd=ROOT)
        return page.read_text()


def answered(text: str) -> dict[str, Any]:
    """Return the labels of the calculator's fields, its answer and its facts, from its HTML."""
    plain = [re.sub(r"<[^>]*>", "", found) for found in re.findall(r"<dd>(.*?)</dd>", text)]
    names = [re.sub(r"<[^>]*>", "", found) for found in re.findall(r"<dt>(.*?)</dt>", text)]
    first = re.search(r'id="bss-first"[^>]*>(.*?)</p>', text)
    return {
        "fields": re.findall(r"<label>([^<]+)<input", text),
        "answer": re.sub(r"<[^>]*>", "", first[1]) if first else "",
        "facts": dict(zip(names, plain, strict=True)),
    }


def write_calculator(chromium: str) -> None:
    """Take the picture of the calculator, and write what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(calculator_document())
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--virtual-time-budget=4000", "--window-size=900,1180"]
        picture = Path(folder, "page.png")
        quiet = {"check": True, "capture_output": True, "text": True}
        subprocess.run([*command, f"--screenshot={picture}", page.as_uri()], **quiet)
        seen = subprocess.run([*command, "--dump-dom", page.as_uri()], **quiet).stdout
        save(CALCULATOR, imread(picture)[..., :3], answered(seen))


def save(name: str, image: np.ndarray, numbers: dict[str, Any]) -> None:
    """Write a picture [height, width, 3], the dark one, and the JSON."""
    imsave(ASSETS / f"{name}.png", image)
    imsave(ASSETS / f"{name}-dark.png", darkened(image))
    text = json.dumps(numbers, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+((?:[-\d.e+]+|null)(?:,\s+(?:[-\d.e+]+|null))*)\s+\]", _one_line, text)
    (ASSETS / f"{name}.json").write_text(text + "\n")


def _one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(found[1].replace("\n", " ").replace(",", " ").split()) + "]"


def pixels(figure: Figure) -> np.ndarray:
    """Return a figure as red, green and blue [height, width, 3], from 0 to 1."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figure.png")
        figure.savefig(file, dpi=DOTS)
        return imread(file)[..., :3]


def main(names: list[str]) -> None:
    """Write the named pictures, or all."""
    for name in names or [*FIGURES, CALCULATOR]:
        if name != CALCULATOR:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of fits, which the pages show
                figure = FIGURES[name]()
            save(name, pixels(figure), shown(figure))
        elif chromium := shutil.which("chromium"):
            write_calculator(chromium)
        else:
            print(f"{name}: kept, as there is no chromium")
            continue
        print(ASSETS / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
