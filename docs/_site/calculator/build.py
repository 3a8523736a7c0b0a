"""Build the calculator of the first page: its numbers, the table without JavaScript, one document.

All numbers come from `bss advise`: the committed fit of published final losses, the published
rules, and the parameters that pool them. The JavaScript modules of the page evaluate these numbers
and fit nothing.

`python docs/_site/calculator/build.py FILE` writes the calculator as one HTML file.
"""

import functools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bss.advice import Advice, recommend
from bss.advice.fit_advice import TOLERANCE
from bss.advice.of_fit import FACTORS, NEAR, PUBLISHED
from bss.advice.sources import (
    AXES,
    DEVIATIONS,
    LEVEL,
    UNCOVERED,
    Source,
    calibration,
    rounded_ratio,
)
from bss.files import read_json
from bss.laws import LossFit
from bss.laws.base import WIDE, tails
from bss.laws.final_loss import residual_gp
from bss.laws.final_loss.points import SAME_BUDGET
from bss.report.curves import SHARED, joined, library
from bss.rules import RULES, SCALINGS, Change, Hyperparameters, Rule, Scaling, Setting
from bss.units import rounded_tokens

HERE = Path(__file__).parent
MODULES = ("rules", "law", "receipt", "ramp", "curves", "page")
MARK = re.compile(r"<!-- calculator -->.*?<!-- end of calculator -->", re.DOTALL)
"""What the calculator replaces on the site; elsewhere a page shows what is between: a picture."""
SEQ_LEN = 2048
USUAL = (
    (70e6, 1.4e9), (125e6, 2.5e9), (125e6, 10e9), (350e6, 7e9), (350e6, 30e9), (500e6, 10e9),
    (760e6, 15e9), (1e9, 20e9), (1e9, 100e9), (1.5e9, 30e9), (3e9, 60e9), (7e9, 140e9),
)  # fmt: skip
"""Parameters and tokens of the table that is readable without JavaScript."""
FAR = 2.0**20
"""A size at which a rule is evaluated for its exponents."""


def data() -> dict[str, Any]:
    """Return all numbers of the page, for JSON."""
    constants, sources = calibration()
    tables = {name: source.rule for name, source in sources.items() if name not in RULES}
    named = {**tables, **{name: rule for name, rule in RULES.items() if _is_shown(rule)}}
    return {
        "fit": fit_data(),
        "rules": [{"name": name, **rule_data(rule)} for name, rule in named.items()],
        "needing_more": [name for name, rule in RULES.items() if rule.needs and rule.batch],
        "scalings": scaling_data(),
        "known": json.loads((HERE / "known.json").read_text()),
        "pool": {
            "sources": [source_data(name, source) for name, source in sources.items()],
            "constants": constants._asdict(),
            "axes": AXES,
            "level": LEVEL,
            "deviations": DEVIATIONS,
            "uncovered": UNCOVERED,
        },
    }


def fit_data() -> dict[str, Any]:
    """Return the coefficients of the published fit of final losses."""
    fit = LossFit.from_dict(read_json(PUBLISHED, "install bss again"))
    law = fit.law
    rows = law.points.logs
    power = fit.best
    assert {one.form for one in law.members} <= {"bowl", "steps"}  # what the page evaluates
    assert power is not None and not fit.with_lr
    mean = np.sum([one.share * one.of(rows) for one in law.members], axis=0)
    return {
        "forms": [
            {"form": one.form, "share": one.share, "theta": one.theta.tolist()}
            for one in law.members
        ],
        "centres": law.points.centres.tolist(),
        "rows": rows.tolist(),
        "residual_weights": (law.points.gp.precision @ (law.points.loss - mean)).tolist(),
        "kernel": {
            "model": residual_gp.MODEL,
            "shape": residual_gp.SHAPE,
            "lengths": residual_gp.LENGTHS.tolist(),
            "same_model": residual_gp.SAME_BUDGET,
        },
        "grid": law.grid[0].tolist(),
        "best": {
            "variables": power.variables,
            "theta": [np.log(power.coefficient.value or 1.0), *(e.value for e in power.exponents)],
            "inverse": power.inverse.tolist(),
            "margin": power.margin,
        },
        "optima": [
            {"params": at.params, "tokens": at.tokens, "value": at.batch.value,
             "low": at.batch.low, "high": at.batch.high}
            for at in fit.optima
        ],
        "tested": {
            name: {"low": seen.low, "high": seen.high, "reach": seen.reach}
            for name, seen in fit.tested.items()
        },
        "seq_len": fit.seq_len,
        "near": NEAR,
        "same_budget": SAME_BUDGET,
        "wide": WIDE,
        "tails": tails(fit.level),
        "tolerance": TOLERANCE,
        "factors": FACTORS.tolist(),
    }  # fmt: skip


def source_data(name: str, source: Source) -> dict[str, Any]:
    """Return a pooled source as coefficients."""
    found = {"name": name, "weight": source.weight, **rule_data(source.rule)}
    return found | {"beta2": {"steps": source.beta2}}


def _is_shown(rule: Rule) -> bool:
    """Return whether a rule sets a batch size from parameters and tokens alone."""
    return rule.batch is not None and not rule.needs


def rule_data(rule: Rule) -> dict[str, Any]:
    """Return a rule as coefficients, found by evaluating it.

    A batch size or LR is a power law in N and D with the coefficients `log2` [constant, N, D]. A
    batch size that the rule rounds to powers of two is a table `steps` with the minimum D of each
    power.
    """

    def at(name: str, params: float, tokens: float) -> float:
        return getattr(rule(Setting(params, tokens, seq_len=1)), name) or math.nan

    found: dict[str, Any] = {"source": rule.source, "batch": rule.batch, "fitted": rule.fitted}
    for name in ("batch_tokens", "lr"):
        log2 = _power_law(lambda n, d, name=name: math.log2(at(name, n, d)))
        if log2 is not None:
            found[name] = {"log2": log2}
    if "batch_tokens" not in found:
        found["batch_tokens"] = {"steps": _steps(lambda tokens: at("batch_tokens", 1e9, tokens))}
    return found


def _power_law(log2_of: Any) -> list[float] | None:
    """Return [constant, exponent of N, exponent of D] of a function's log2, None if it is none."""
    start = log2_of(1.0, 1.0)
    if not math.isfinite(start):
        return None
    reach = math.log2(FAR)
    log2 = [start, (log2_of(FAR, 1.0) - start) / reach, (log2_of(1.0, FAR) - start) / reach]
    for n, d in ((3e8, 1e10), (7e9, 2e12), (1e6, 3e7)):
        power = log2[0] + log2[1] * math.log2(n) + log2[2] * math.log2(d)
        if not math.isclose(power, log2_of(n, d), rel_tol=1e-12):
            return None
    return log2


def _steps(batch_at: Any) -> list[list[float]]:
    """Return [least D, batch size] of each step of a step function of D from 1 to 2^63 tokens."""
    found, low, end = [[1.0, batch_at(1.0)]], 0.0, 63.0
    while batch_at(2.0**end) != found[-1][1]:
        high = end
        while math.nextafter(low, high) < high:
            middle = (low + high) / 2
            low, high = (middle, high) if batch_at(2.0**middle) == found[-1][1] else (low, middle)
        found.append([2.0**high, batch_at(2.0**high)])
        low = high
    return found


def scaling_data() -> list[dict[str, Any]]:
    """Return the scaling rules of a learning rate that are powers of the ratio of batch sizes."""

    def factor(rule: Scaling, ratio: float) -> float:
        return rule(Hyperparameters(1.0, lr=1.0), Change(ratio)).lr or math.nan

    found = []
    for name, rule in SCALINGS.items():
        if rule.needs:
            continue
        power = math.log2(factor(rule, FAR)) / math.log2(FAR)
        if power and math.isclose(factor(rule, 8.0), 8.0**power, rel_tol=1e-12):
            found.append({"name": name, "source": rule.source, "power": power})
    return found


def usual_table() -> str:
    """Return the answers of `bss advise` for `USUAL` as an HTML table."""
    head = (
        "Parameters", "Tokens", "Batch size (tokens)", f"Sequences of {SEQ_LEN:,}",
        "90% interval of the optimum", f"Within {TOLERANCE:g} nats",
        "Half costs (nats)", "Twice costs (nats)",
    )  # fmt: skip
    cells = "".join(f'<th scope="col">{name}</th>' for name in head)
    rows = "".join(_usual_row(recommend(Setting(*size, SEQ_LEN))) for size in USUAL)
    return f'<table class="bss-table"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>'


def _usual_row(advice: Advice) -> str:
    """Return one row."""
    size = (rounded_tokens(advice.setting.params), rounded_tokens(advice.setting.tokens))
    start = f'<tr><th scope="row">{size[0]}</th><td>{size[1]}</td>'
    assert advice.sequences is not None and advice.batch.value is not None  # of published sources
    beyond = advice.extrapolation
    note = f" (extrapolated {rounded_ratio(beyond.factor)} ×)" if beyond else ""
    low, high = advice.losses.tolerance()
    costs = (advice.losses.loss_at(factor) for factor in (0.5, 2.0))
    cells = (
        rounded_tokens(advice.sequences * SEQ_LEN) + note,
        f"{advice.sequences:,}",
        _range(advice.batch.low, advice.batch.high),
        _range(low and low * advice.batch.value, high and high * advice.batch.value),
        *("unknown" if cost is None else f"{cost:.4f}" for cost in costs),
    )
    return f"{start}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _range(low: float | None, high: float | None) -> str:
    """Return "LOW to HIGH" in tokens, or what is known of it."""
    if low and high:
        return f"{rounded_tokens(low)} to {rounded_tokens(high)}"
    known = f"at least {rounded_tokens(low)}" if low else high and f"at most {rounded_tokens(high)}"
    return known or "unknown"


def script() -> str:
    """Return the page's modules as one module, so that a page read from a disk can run it."""
    return joined([*SHARED, *(HERE / f"{name}.js" for name in MODULES)])


@functools.cache
def section() -> str:
    """Return the calculator as an HTML section with its styles, numbers and scripts."""
    numbers = json.dumps(data(), separators=(",", ":")).replace("<", "\\u003c")
    texts = {
        "STYLE": library("uPlot.min.css") + (HERE / "page.css").read_text(),
        "USUAL": usual_table(),
        "NUMBERS": numbers,
        "UPLOT": library("uPlot.iife.min.js"),
        "SCRIPT": script(),
    }
    page = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: texts[found[1]], page)


def document() -> str:
    """Return the calculator as one HTML file."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        "<title>Batch size of a planned run</title></head>\n"
        f'<body class="bss-alone"><main>{section()}</main></body></html>\n'
    )


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return a page of the site with the calculator at its mark; MkDocs calls this."""
    return MARK.sub(lambda _: section(), output)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
