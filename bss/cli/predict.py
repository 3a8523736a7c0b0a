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
from bss.units import format_tokens, parse_tokens
from bss.values import to_dict

if TYPE_CHECKING:
    from bss.laws import CriticalFit, CurveFit, EsFit, TableFit

USED = {
    "es": ("loss", "batch"),
    "critical": ("params", "tokens"),
    "table": ("params", "tokens", "batch", "seq_len", "lr", "runs", "columns"),
    "curve": ("batch", "tokens", "lr", "warmup", "decay", "shape", "runs", "columns"),
}


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

    def check(self, kind: str) -> None:
        """Raise InputError for an option that a kind of fit does not use."""
        for name, value in vars(self).items():
            if value is not None and name not in USED[kind]:
                used = ", ".join(f"--{one.replace('_', '-')}" for one in USED[kind])
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option}: not used with a {kind} fit; use {used}")

    def need(self, *names: str) -> None:
        """Raise InputError for an option that is missing."""
        for name in names:
            if getattr(self, name) is None:
                raise InputError(f"--{name.replace('_', '-')}: missing; give it, or --runs")


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
    return answer(fitted, question, extrapolate)


def _es(fit: "EsFit", question: Question, extrapolate: bool) -> Output:
    """Tokens and steps to a loss at a batch; without a batch the batch quantities of the law."""
    if question.loss is None or not question.loss > 0:
        raise InputError(f"--loss {question.loss}: expected the target loss in nats, e.g. 2.5")
    given: dict[str, float] = {"loss": question.loss}
    if question.batch is not None:
        given["batch"] = parse_tokens(question.batch, field="--batch")
    measured = {"loss": [target.target_loss for target in fit.fits], "batch": fit.batches}
    ranges, warnings = check_range(given, measured, extrapolate=extrapolate)
    if question.batch is not None:
        row = fit.predict(pd.DataFrame({"target_loss": [given["loss"]], "batch": [given["batch"]]}))
        names = {"tokens": ("tokens", "low", "high"), "steps": ("steps", "steps_low", "steps_high")}
        answers = {name: _estimate(row.iloc[0], ends, fit.level) for name, ends in names.items()}
    elif not (answers := fit.best_batches(question.loss)):
        raise InputError(f"--batch: missing, and the {fit.law.name} law has no B_opt; give a batch")
    counts = {"points": fit.points, "runs": fit.runs, "lack_of_fit": fit.lack_of_fit[0]}
    payload = {"kind": "prediction", "of": "es", "law": fit.law.name, **given}
    payload |= {**to_dict(answers), "tested": ranges | counts}
    title = ", ".join(f"{name} {number(value)}" for name, value in given.items())
    rows = [{"quantity": n, "estimate": estimate(x), "note": x.note} for n, x in answers.items()]
    table = Table.of_records(f"{fit.level:.0%} intervals, {fit.label}", rows)
    first = rows[0]
    answer = f"At {title}: {first['quantity']} {first['estimate']}"
    return Output(payload, answer, [table], warnings)


def _critical(fit: "CriticalFit", question: Question, extrapolate: bool) -> Output:
    """The critical batch at a model size, a budget or both."""
    point = {n: x for n in ("params", "tokens") if (x := getattr(question, n)) is not None}
    if not point:
        raise InputError("--params or --tokens: missing; a critical fit needs one, e.g. 7B")
    from bss.laws.power import predict as law_prediction

    law = fit.law_of(list(point))
    curves = [at.curve for at, one in zip(fit.fits, fit.critical, strict=True) if one.value]
    measured = {variable: [getattr(curve, variable) for curve in curves] for variable in point}
    ranges, warnings = check_range(point, measured, extrapolate=extrapolate)
    critical = law_prediction(law, point)
    payload = {"kind": "prediction", "of": "critical", **point}
    payload |= {
        "critical_batch": to_dict(critical),
        "quantity": fit.quantity,
        "unit": fit.unit,
        "overhead": fit.overhead,
        "reference_batch": fit.reference,
        "tested": {**ranges, "points": law.points, "scatter": law.scatter},
    }
    title = ", ".join(f"{name} {format_tokens(value)}" for name, value in point.items())
    answer = f"Critical batch size at {title}: {estimate(critical)} {fit.unit}"
    return Output(payload, f"{answer} ({critical.level:.0%} prediction interval)", (), warnings)


def _table(fit: "TableFit", question: Question, extrapolate: bool) -> Output:
    """The final loss of a run; without a batch at the best one."""
    question.need("params", "tokens")
    params, tokens = question.params or 0, question.tokens or 0
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
    tested = {name: to_dict(one) for name, one in fit.tested.items()}
    payload = {"kind": "prediction", "of": "table", "params": params, "tokens": tokens}
    payload |= {"batch_tokens": size, "seq_len": seq_len, **to_dict(found)}
    payload |= {"tested": {"left_out": found.error, "beyond": found.beyond, **tested}}
    unit, noun = (seq_len, "sequences") if seq_len else (1, "tokens")
    best = found.best_batch
    rows = [(f"B_opt ({noun})", estimate(best, unit, 3), best.why)]
    rows += [(f"within {one.rise:g} nats of it", _span(one, unit), "") for one in best.ranges]
    if found.best_lr is not None:
        rows.append(("best learning rate at this batch", estimate(found.best_lr, 1, 3), ""))
    if found.best_batch_at_lr is not None:
        at_lr = estimate(found.best_batch_at_lr, unit, 3)
        rows.append((f"best batch at this learning rate ({noun})", at_lr, ""))
    if found.excess_loss is not None:
        rows.append(("excess loss over B_opt (nats)", f"{found.excess_loss:.2g}", ""))
    answer = f"Final loss: {estimate(found.loss)} nats, {fit.level:.0%} interval of a new run"
    warnings = [f"{n} {times:.3g} times outside the table" for n, times in found.beyond.items()]
    notes = [] if found.error is None else [f"CV error of such runs {found.error:.2g} nats"]
    title = f"{found.form}; {fit.level:.0%} intervals"
    table = Table(title, ("quantity", "prediction", "note"), rows)
    return Output(payload, answer, [table], warnings, notes)


def _curve(fit: "CurveFit", question: Question, extrapolate: bool) -> Output:
    """The loss at the end of a schedule."""
    from bss.advice.of_runs import asked_peak
    from bss.laws.functional.curves import stack
    from bss.laws.functional.forecast import check_tested, last_losses
    from bss.laws.functional.paths import plan_path

    question.need("batch", "tokens")
    tokens = question.tokens or 0
    schedule = BatchSchedule.parse(question.batch or "", total=tokens, seq_len=fit.seq_len)
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
    loss, steps = last_losses(fit, curves)[0], round(float(path.steps.sum()))
    payload = {"kind": "prediction", "of": "curve", "loss": to_dict(loss), "steps": steps}
    payload |= {"tokens": int(path.tokens[0]), "batch": str(schedule)}
    payload |= {"tested": _tested(fit), "extrapolates": list(beyond)}
    answer = (
        f"Loss after {format_tokens(tokens)} tokens, {steps:,} steps of batch {schedule}: "
        f"{estimate(loss)} nats, {fit.level:.0%} interval of a new run"
    )
    return Output(payload, answer, (), [f"beyond what was tested: {x}" for x in beyond])


def _runs(fit: "TableFit | CurveFit", question: Question, extrapolate: bool) -> Output:
    """The last loss of each run of a table."""
    own = ("params", "tokens", "batch", "lr", "decay", "shape")
    for name in own:
        if getattr(question, name) is not None:
            raise InputError(f"--{name}: the runs of --runs have their own; leave one of them out")
    length = question.seq_len or (None if fit.seq_len is None else int(fit.seq_len))
    how = Reading.parse(question.columns, length)
    of_runs = {"table": _runs_of_table, "curve": _runs_of_curve}[fit.KIND]
    frame, warnings = of_runs(fit, question, how, extrapolate)
    error = (frame["predicted"] - frame["measured"]).to_numpy(float)
    known = error[np.isfinite(error)]
    rmse = float(np.sqrt(np.mean(known**2))) if len(known) else None
    spread = float(np.nansum((frame["measured"] - frame["measured"].mean()) ** 2))
    r2 = 1 - float(np.sum(known**2)) / spread if len(known) > 1 and spread else None
    frame = frame.assign(error=error)
    entries = [_entry(row, fit.level) for row in frame.to_dict("records")]
    payload = {"kind": "prediction", "of": fit.KIND, "rmse": rmse}
    if fit.KIND == "table":
        payload |= {"predictions": entries, "r2": r2}
    else:
        payload |= {"runs": entries, "tested": _tested(fit)}
    answer = f"{len(frame)} runs predicted"
    if rmse is not None:
        answer += f"; rms error {rmse:.2g} nats over {len(known)} measured"
    title = f"last losses in nats, {fit.level:.0%} intervals of new runs"
    return Output(payload, answer, [Table.of_frame(title, frame)], warnings)


def _entry(row: dict[Any, Any], level: float) -> dict[str, Any]:
    """A predicted run for JSON."""
    ends = {"value": row.pop("predicted"), "low": row.pop("low"), "high": row.pop("high")}
    return {**row, "loss": {**ends, "level": level, "note": ""}}


def _runs_of_table(
    fit: "TableFit", question: Question, how: Reading, extrapolate: bool
) -> tuple[pd.DataFrame, list[str]]:
    from bss.laws import check_losses
    from bss.tables.storage import read_table

    read, origin = read_table(question.runs or Path(), how)
    table = check_losses(read if "loss" in read else read.assign(loss=float("nan")), origin)
    with_lr = fit.with_lr and "lr" in table
    columns = ["params", "tokens", "batch_tokens", *(["lr"] if with_lr else [])]
    outside = [fit.outside(row) for row in table[columns].to_dict("records")]
    for row, beyond in zip(table[columns].to_dict("records"), outside, strict=True):
        if beyond and not extrapolate:
            fit.check_tested(row)
    found = fit.predict(table[columns]).rename(columns={"loss": "predicted"})
    names = table["run"] if "run" in table else [str(i + 1) for i in range(len(table))]
    frame = pd.DataFrame({"run": names}).join(table[columns]).join(found)
    frame["measured"], frame["outside"] = table["loss"], [[*x] for x in outside]
    return frame, [] if with_lr else ["losses are those of tuned learning rates"]


def _runs_of_curve(
    fit: "CurveFit", question: Question, how: Reading, extrapolate: bool
) -> tuple[pd.DataFrame, list[str]]:
    from bss.laws.functional.curves import curves_of
    from bss.laws.functional.forecast import check_tested, last_losses

    table, warnings = read_run_table(question.runs or Path(), how, need_loss=False)
    warmup = parse_tokens(question.warmup or "0", field="--warmup")
    curves = curves_of(table, warmup=warmup, every_row=True)
    beyond = check_tested(fit, curves, extrapolate=extrapolate)
    at, losses = (np.arange(len(curves.runs)), curves.last), last_losses(fit, curves)
    frame = pd.DataFrame({
        "run": curves.runs,
        "tokens": curves.tokens[at].astype(int),
        "predicted": [one.value for one in losses],
        "low": [one.low for one in losses],
        "high": [one.high for one in losses],
        "measured": curves.loss[at],
        "extrapolates": [[*x] for x in beyond],
    })  # fmt: skip
    return frame, warnings


def check_range(
    question: Mapping[str, float], measured: Mapping[str, Sequence[float]], *, extrapolate: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the ranges measured, for JSON, and warnings of values outside them.

    A loss is so many nats outside, all else so many times.

    Raises:
        InputError: a value is outside, and `extrapolate` is false.
    """
    outside, warnings = {}, []
    for name, value in question.items():
        low, high = min(measured[name]), max(measured[name])
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            continue
        side, end = ("above", high) if value > high else ("below", low)
        apart, unit = max(value / end, end / value), "times"
        if name == "loss":
            apart, unit = abs(value - end), "nats"
        if not extrapolate:
            raise InputError(
                f"--{name} {number(value)} is {apart:.3g} {unit} {side} those fitted, "
                f"{number(low)} to {number(high)}; ask within them, or with --extrapolate"
            )
        outside[name] = apart
        warnings.append(f"{name} {apart:.3g} {unit} outside those fitted")
    ranges = {name: {"low": min(values), "high": max(values)} for name, values in measured.items()}
    return {**ranges, "beyond": outside}, warnings


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


def _span(span: Any, unit: float) -> str:
    low, high = (number(end / unit, 3) if end else "" for end in (span.low, span.high))
    return f"{low or 'below the smallest'} to {high or 'above the largest'}"
