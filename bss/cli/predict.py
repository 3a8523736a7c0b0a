"""bss predict: a loss or a batch size by a fitted law, with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from cyclopts import Group, Parameter

from bss.cells import Table, estimate, number
from bss.cli.kinds import read_fit
from bss.cli.options import Count, read_run_table
from bss.cli.output import Output, Show
from bss.cli.plan import check_peak
from bss.errors import InputError
from bss.laws.base import Estimate
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Shape
from bss.tables import Reading
from bss.units import parse_tokens
from bss.values import to_dict

if TYPE_CHECKING:
    from bss.laws import CriticalFit, CurveFit, EsFit, TableFit

USED = {
    "es": ("loss", "batch"),
    "critical": ("params", "tokens"),
    "table": ("params", "tokens", "batch", "seq_len", "lr", "runs", "columns"),
    "curve": ("batch", "tokens", "lr", "warmup", "decay", "shape", "runs", "columns"),
}
OF_RUNS = ("runs", "columns", "seq_len")
"""Options that go with --runs, whose runs have all others."""


@Parameter(name="*", group=Group("Question", sort_key=1))
@dataclass(frozen=True)
class Question:
    """The run that is predicted.

    Attributes:
        loss: es: the target loss, in nats
        params: table, critical: non-embedding parameters, e.g. 350M
        tokens: table, critical, curve: token budget, e.g. 30B
        batch: es, table: in sequences; curve: also a schedule, e.g. "0:8 2M:16"
        seq_len: table: tokens per sequence
        lr: table, curve: peak learning rate
        warmup: curve: tokens, or a percentage of the budget
        decay: curve: tokens, or a percentage of the budget
        shape: curve: how the learning rate decays, e.g. linear or cosine
        runs: table, curve: a table of runs, to predict each; its loss is optional
        columns: names of its columns, OURS=THEIRS
    """

    loss: float | None = None
    params: Count | None = None
    tokens: Count | None = None
    batch: str | None = None
    seq_len: int | None = None
    lr: float | None = None
    warmup: str | None = None
    decay: str | None = None
    shape: Shape | None = None
    runs: Path | None = None
    columns: str | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Return the options that have a value, of these names or of all."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None and name in (names or vars(self))
        }

    def check(self, kind: str) -> None:
        """Raise InputError for an option that this kind of fit, or a table of runs, excludes."""
        used, why = USED[kind], f"not used with a {kind} fit"
        if self.runs is not None and "runs" in used:
            used, why = OF_RUNS, "the runs of --runs have their own"
        for name in self.given():
            if name not in used:
                flags = ", ".join(_flag(one) for one in used)
                raise InputError(f"{_flag(name)}: {why}; use {flags}")

    def need(self, *names: str) -> list[Any]:
        """Return the values of options; raise InputError for one that is missing."""
        for name in names:
            if getattr(self, name) is None:
                raise InputError(f"{_flag(name)}: missing; give it")
        return [getattr(self, name) for name in names]


def predict(
    *,
    fit: Annotated[Path, Parameter(name="--from")],
    question: Question = Question(),
    extrapolate: bool = False,
    show: Show = Show(),
) -> Output:
    """Predict a run that the fit has not seen.

    Args:
        fit: JSON of `bss fit --json`
        extrapolate: also outside the range that the fit was tested for

    Examples:
        bss predict --from FIT.json --loss 1.9
        bss predict --from CURVE.json --batch 8 --tokens 1M --lr 2e-3
    """
    fitted = read_fit(fit, "predict")
    question.check(fitted.KIND)
    if question.runs is not None:
        return _runs(fitted, question, extrapolate)
    if question.columns is not None:
        raise InputError("--columns: needs --runs; name a table, or leave it out")
    answer = {"es": _es, "critical": _critical, "table": _table, "curve": _curve}[fitted.KIND]
    found, tested, warnings = answer(fitted, question, extrapolate)
    payload = {"kind": "prediction", "of": fitted.KIND, **to_dict(found), "tested": tested}
    name, first = next((n, x) for n, x in found.items() if isinstance(x, Estimate))
    line = f"Predicted {name.replace('_', ' ')}: {estimate(first)}, {first.level:.0%} interval"
    table = Table.of_records(found.get("form", fitted.law_name), [*_rows(found)])
    return Output(payload, line, [table], warnings)


Answer = tuple[dict[str, Any], dict[str, Any], Sequence[str]]
"""Estimates and the question, by name; the ranges measured, for JSON; and warnings."""


def _es(fit: "EsFit", question: Question, extrapolate: bool) -> Answer:
    """Tokens and steps to a loss at a batch; without a batch the batch quantities of the law."""
    (loss,) = question.need("loss")
    given: dict[str, float] = {"loss": loss}
    if question.batch is not None:
        given["batch"] = parse_tokens(question.batch, field="--batch")
    measured = {"loss": [target.target_loss for target in fit.fits], "batch": fit.batches}
    tested, warnings = check_range(given, measured, extrapolate=extrapolate)
    tested |= {"points": fit.points, "runs": fit.runs, "lack_of_fit": fit.lack_of_fit[0]}
    if question.batch is None:
        found = fit.best_batches(loss)
        if not found:
            raise InputError(f"--batch: missing, and the {fit.law.name} law has no B_opt; give it")
        return {**found, "law": fit.law.name, **given}, tested, warnings
    row = fit.predict(pd.DataFrame({"target_loss": [loss], "batch": [given["batch"]]})).iloc[0]
    tokens = _estimate(row, ("tokens", "low", "high"), fit.level)
    steps = _estimate(row, ("steps", "steps_low", "steps_high"), fit.level)
    return {"tokens": tokens, "steps": steps, "law": fit.law.name, **given}, tested, warnings


def _critical(fit: "CriticalFit", question: Question, extrapolate: bool) -> Answer:
    """The critical batch at a model size, a budget or both."""
    point = question.given("params", "tokens")
    if not point:
        raise InputError("--params or --tokens: missing; a critical fit needs one, e.g. 7B")
    law = fit.law_of(list(point))
    curves = [at.curve for at, one in zip(fit.fits, fit.critical, strict=True) if one.value]
    measured = {variable: [getattr(curve, variable) for curve in curves] for variable in point}
    tested, warnings = check_range(point, measured, extrapolate=extrapolate)
    row = fit.predict(pd.DataFrame([point])).iloc[0]
    found = {
        "critical_batch": _estimate(row, ("critical_batch", "low", "high"), law.level),
        "quantity": fit.quantity,
        "unit": fit.unit,
        "overhead": fit.overhead,
        "reference_batch": fit.reference,
    }
    return found | point, tested | {"points": law.points, "scatter": law.scatter}, warnings


def _table(fit: "TableFit", question: Question, extrapolate: bool) -> Answer:
    """The final loss of a run; without a batch at the best one."""
    params, tokens = question.need("params", "tokens")
    seq_len = question.seq_len or fit.seq_len
    if question.batch is None:
        best = fit.best_batch(params, tokens)
        if (size := best.value) is None:
            raise InputError(f"--batch: missing, and B_opt is {best.note}; give a batch")
    elif seq_len is None:
        raise InputError("--seq-len: missing; the table has none: give the tokens of a sequence")
    else:
        size = parse_tokens(question.batch, field="--batch") * seq_len
    found = fit.prediction(params, tokens, size, question.lr, extrapolate=extrapolate)
    tested = {"left_out": found.error, "beyond": found.beyond, **to_dict(fit.tested)}
    run = {"params": params, "tokens": tokens, "batch_tokens": size, "seq_len": seq_len}
    warnings = [f"{n} {times:.3g} times outside the table" for n, times in found.beyond.items()]
    return vars(found) | run, tested, warnings


def _curve(fit: "CurveFit", question: Question, extrapolate: bool) -> Answer:
    """The loss at the end of a schedule."""
    from bss.advice.of_runs import asked_peak
    from bss.laws.functional.curves import stack
    from bss.laws.functional.forecast import check_tested, last_losses
    from bss.laws.functional.paths import plan_path

    batch, tokens = question.need("batch", "tokens")
    schedule = BatchSchedule.parse(batch, total=tokens, seq_len=fit.seq_len)
    peak = asked_peak(fit, question.lr)
    check_peak(peak)
    if question.shape and not question.decay:
        raise InputError(f"--shape {question.shape}: is the shape of a decay; give --decay too")
    warmup, decay = (
        parse_tokens(getattr(question, name) or "0", field=f"--{name}", total=tokens)
        for name in ("warmup", "decay")
    )
    rate = rates.wsd(peak, tokens, warmup, decay, question.shape or "linear")
    path = plan_path(schedule, tokens, fit.seq_len, rate)
    curves = stack([path], fit.seq_len)
    beyond = check_tested(fit, curves, extrapolate=extrapolate)[0]
    run = {"steps": round(float(path.steps.sum())), "tokens": int(path.tokens[0])}
    found = {"loss": last_losses(fit, curves)[0], **run, "batch": str(schedule)}
    warnings = [f"beyond what was tested: {x}" for x in beyond]
    return found | {"extrapolates": [*beyond]}, _tested(fit), warnings


def _runs(fit: "TableFit | CurveFit", question: Question, extrapolate: bool) -> Output:
    """The last loss of each run of a table."""
    length = question.seq_len or (None if fit.seq_len is None else int(fit.seq_len))
    how = Reading.parse(question.columns, length)
    of_runs = {"table": _runs_of_table, "curve": _runs_of_curve}[fit.KIND]
    frame, warnings = of_runs(fit, question.runs or Path(), how, extrapolate)
    frame = frame.assign(error=frame["predicted"] - frame["measured"])
    known = frame.dropna(subset="error")
    rmse = float(np.sqrt(np.mean(known["error"] ** 2))) if len(known) else None
    entries = [_entry(row, fit.level) for row in frame.to_dict("records")]
    spread = known["measured"].var(ddof=0)
    r2 = 1 - (rmse or 0.0) ** 2 / spread if spread else None
    payload = {"kind": "prediction", "of": fit.KIND, "rmse": rmse, "r2": r2}
    payload |= {"predictions": entries} if fit.KIND == "table" else {"runs": entries}
    payload |= {} if fit.KIND == "table" else {"tested": _tested(fit)}
    errors = f"rms error {number(rmse, 2)} nats over {len(known)} measured"
    title = f"last losses in nats, {fit.level:.0%} intervals of new runs"
    answer = f"{len(frame)} runs predicted; {errors}"
    return Output(payload, answer, [Table.of_frame(title, frame)], warnings)


def _runs_of_table(
    fit: "TableFit", path: Path, how: Reading, extrapolate: bool
) -> tuple[pd.DataFrame, list[str]]:
    from bss.laws import check_losses
    from bss.tables.storage import read_table

    read, origin = read_table(path, how)
    table = check_losses(read if "loss" in read else read.assign(loss=float("nan")), origin)
    with_lr = fit.with_lr and "lr" in table
    columns = ["params", "tokens", "batch_tokens", *(["lr"] if with_lr else [])]
    rows = table[columns].to_dict("records")
    for row in () if extrapolate else rows:
        fit.check_tested(row)
    found = fit.predict(table[columns]).rename(columns={"loss": "predicted"})
    names = table["run"] if "run" in table else [str(i + 1) for i in range(len(table))]
    frame = pd.DataFrame({"run": names}).join(table[columns]).join(found)
    frame = frame.assign(measured=table["loss"], outside=[[*fit.outside(row)] for row in rows])
    return frame, [] if with_lr else ["losses are those of tuned learning rates"]


def _runs_of_curve(
    fit: "CurveFit", path: Path, how: Reading, extrapolate: bool
) -> tuple[pd.DataFrame, list[str]]:
    from bss.laws.functional.curves import curves_of
    from bss.laws.functional.forecast import check_tested, last_losses

    table, warnings = read_run_table(path, how, need_loss=False)
    curves = curves_of(table, warmup=fit.warmup, every_row=True)
    beyond = check_tested(fit, curves, extrapolate=extrapolate)
    at = np.arange(len(curves.runs)), curves.last
    names = {"value": "predicted", "low": "low", "high": "high"}
    losses = pd.DataFrame(last_losses(fit, curves)).rename(columns=names)[[*names.values()]]
    run = pd.DataFrame({"run": curves.runs, "tokens": curves.tokens[at].astype(int)})
    more = {"measured": curves.loss[at], "extrapolates": [[*texts] for texts in beyond]}
    return run.join(losses).assign(**more), warnings


def _entry(row: dict[Any, Any], level: float) -> dict[str, Any]:
    """A predicted run for JSON."""
    ends = {"value": row.pop("predicted"), "low": row.pop("low"), "high": row.pop("high")}
    return {**row, "loss": {**ends, "level": level, "note": ""}}


def check_range(
    question: Mapping[str, float], measured: Mapping[str, Sequence[float]], *, extrapolate: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the ranges measured, for JSON, and warnings of values outside them.

    Raises:
        InputError: a value is outside, and `extrapolate` is false; or it is not positive.
    """
    outside, warnings = {}, []
    for name, value in question.items():
        low, high = min(measured[name]), max(measured[name])
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            continue
        apart = abs(value - (high if value > high else low))
        times = max(value / high, low / value) if value > 0 else np.inf
        far = f"{apart:.3g} nats" if name == "loss" else f"{times:.3g} times"
        if not extrapolate or value <= 0:
            raise InputError(
                f"--{name} {number(value)} is {far} outside those fitted, "
                f"{number(low)} to {number(high)}; ask within them, or with --extrapolate"
            )
        outside[name] = apart if name == "loss" else times
        warnings.append(f"{name} {far} outside those fitted")
    ranges = {name: {"low": min(values), "high": max(values)} for name, values in measured.items()}
    return {**ranges, "beyond": outside}, warnings


def _rows(found: Mapping[str, Any]) -> Any:
    """Yield a row of each estimate and number."""
    for name, x in found.items():
        if isinstance(x, Estimate):
            ends = {"value": x.value, "low": x.low, "high": x.high}
            yield {"quantity": name, **ends, "note": x.why}
        elif isinstance(x, int | float):
            yield {"quantity": name, "value": x}


def _tested(fit: Any) -> dict[str, Any]:
    """The errors of a fit, and the ranges measured, for JSON."""
    ranges = {"tokens": (fit.since, fit.tokens), "batch": fit.batches, "lr": fit.rates}
    return {
        "cv_error": fit.cv_error,
        "rmse": fit.rmse,
        "runs": fit.runs,
        **{name: {"low": low, "high": high} for name, (low, high) in ranges.items()},
        "min_lr_over_peak": fit.min_lr_over_peak,
    }


def _estimate(row: pd.Series, ends: Sequence[str], level: float) -> Estimate:
    numbers = [float(row[end]) if np.isfinite(row[end]) else None for end in ends]
    return Estimate(*numbers, level=level, note=row["note"])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
