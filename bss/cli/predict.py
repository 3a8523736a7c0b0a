"""bss predict: a loss or a batch size by a fitted law, with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from cyclopts import Group, Parameter

from bss import laws
from bss.cells import Table, estimate, number
from bss.cli.options import Count, NamedLaw, Positive, Trust
from bss.cli.output import Output, Show
from bss.cli.plan import rate_of
from bss.cli.reading import GroupOption, in_group
from bss.errors import InputError
from bss.laws.base import Estimate
from bss.laws.es.values import NEVER, NO_DRAWS
from bss.laws.resampling import rms
from bss.points.curve import loss_column
from bss.reading import read_loss_tables, read_own_tables, read_run_table
from bss.schedules.lengths import Budget
from bss.schedules.plan import resolve
from bss.tables import Reading
from bss.tables.columns import Origin
from bss.units import parse_tokens
from bss.values import to_dict

if TYPE_CHECKING:
    from bss.laws import BranchFit, CriticalFit, CurveFit, EqualFit, EsFit, LossFit, LrFit, OwnFit

USED = {
    "es": ("loss", "batch"),
    "critical": ("params", "tokens", "loss", "batch"),
    "loss": ("params", "tokens", "batch", "seq_len", "lr", "runs"),
    "curve": ("batch", "tokens", "lr", "warmup", "decay", "runs"),
    "lr": ("params", "tokens", "batch"),
    "own": ("params", "tokens", "batch", "lr", "runs"),
    "equal": ("batch",),
    "branches": ("tokens", "batch"),
}
NEEDED = {"es": ("loss",), "critical": (), "loss": ("params", "tokens"),
          "curve": ("batch", "tokens"), "lr": (), "own": (), "equal": ("batch",),
          "branches": ("tokens", "batch")}  # fmt: skip
OF_RUNS = ("runs", "columns", "seq_len")
"""Options that go with --runs, whose runs have all others."""
RUN_COLUMNS = ("run", "params", "tokens", "batch", "batch_tokens", "lr", "predicted", "low", "high",
               "measured", "error", "outside")  # fmt: skip


@Parameter(name="*", group=Group("Question", sort_key=1))
@dataclass(frozen=True)
class Question:
    """The run that is predicted.

    Attributes:
        loss: es, critical: the target loss, in nats
        params: table, critical, lr: non-embedding parameters, e.g. 350M
        tokens: table, critical, curve, lr: token budget, e.g. 30B; branches: of the checkpoint
        batch: es, critical, table, lr, branches: in sequences; curve: also a schedule, e.g.
            "0:8 2M:16"
        seq_len: table: tokens per sequence
        lr: table, curve: peak learning rate
        warmup: curve: tokens, a percentage of the budget, or a number like 2000steps
        decay: curve: at the end, in the same form
        runs: table, curve: a table of runs, to predict each; may be repeated; its loss is
            optional
        columns: names of its columns, OURS=THEIRS
    """

    loss: Positive | None = None
    params: Count | None = None
    tokens: Count | None = None
    batch: str | None = None
    seq_len: Count | None = None
    lr: Positive | None = None
    warmup: str | None = None
    decay: str | None = None
    runs: Annotated[tuple[Path, ...], Parameter(consume_multiple=False)] = ()
    columns: str | None = None

    def of(self, kind: str) -> dict[str, Any]:
        """Return the given options of a kind of fit; InputError for another, or a missing one."""
        given = {name: value for name, value in vars(self).items() if value not in (None, ())}
        used = USED[kind]
        needed = NEEDED[kind]
        where = f"with a {kind} fit"
        if "runs" in given and "runs" in used:
            used = OF_RUNS
            needed = ()
            where = "with --runs"
        for name in given.keys() - used:
            raise InputError(f"{_flag(name)}: not used {where}; use {', '.join(map(_flag, used))}")
        for name in needed:
            if name not in given:
                raise InputError(f"{_flag(name)}: missing; give it")
        return given


def predict(
    *,
    fit: Annotated[Path, Parameter(name="--from")],
    question: Question = Question(),
    of: GroupOption = GroupOption(),
    extrapolate: bool = False,
    named_law: NamedLaw = NamedLaw(),
    files: Trust = Trust(),
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
    label, fitted = of.read(named_law, fit, field="--from")
    output = _predicted(fitted, question.of(fitted.KIND), extrapolate)
    return replace(output, answer=in_group(label, output.answer))


def _predicted(fitted: Any, given: dict[str, Any], extrapolate: bool) -> Output:
    """Return what a fit predicts."""
    if fitted.KIND == "own":
        return _own(fitted, given, extrapolate)
    if "runs" in given:
        return _runs(fitted, given, extrapolate)
    answers: dict[str, Any] = {"es": _es, "critical": _critical, "loss": _loss, "curve": _curve}
    answers |= {"lr": _lr, "equal": _equal, "branches": _branches}
    found, outside = answers[fitted.KIND](fitted, given)
    _check_inside(outside, extrapolate)
    payload = {"kind": "prediction", "of": fitted.KIND, "law": fitted.law_name, **to_dict(found)}
    name, first = next((n, x) for n, x in found.items() if isinstance(x, Estimate))
    title = name if name.startswith("B_") else name.replace("_", " ")
    line = f"Predicted {title}: {estimate(first)}, {first.level:.0%} interval"
    rows = [_row(n, x) for n, x in found.items() if isinstance(x, Estimate | int | float)]
    table = Table.of_records(found.get("form", fitted.law_name), rows)
    remarks = [found["note"]] if found.get("note") else []
    return Output({**payload, "outside": outside}, line, [table], [*outside, *remarks])


Answer = tuple[dict[str, Any], Sequence[str]]
"""Estimates and inputs by name; and what is outside the range in which the fit was tested."""


def _es(fit: "EsFit", given: dict[str, Any]) -> Answer:
    """Return tokens and steps to a loss at a batch size; without one the batch sizes of the law."""
    loss = given["loss"]
    run: dict[str, Any] = {"target_loss": loss}
    if "batch" in given:
        run["batch"] = _batch(given)
    outside = [f"--{text}" for text in fit.untested(run)]
    if "batch" not in run:
        found = fit.best_batches(loss)
        if not found:
            raise InputError(f"--batch: missing, and the {fit.law.name} law has no B_opt; give it")
        first = {name: found[name] for name in ("B_opt",) if name in found}
        return first | found | {"loss": loss}, outside
    batch = run["batch"]
    row = fit.predict(pd.DataFrame([run])).iloc[0]
    note = row["note"] if row["note"].startswith((NEVER, NO_DRAWS)) else ""
    found: dict[str, Any] = {}
    for name in ("tokens", "steps"):
        columns = [name, f"{name}_low", f"{name}_high"]
        known = (x if np.isfinite(x) else None for x in row[columns])
        shown = "sequences" if fit.in_sequences and name == "tokens" else name
        found[shown] = Estimate(*known, level=fit.level, note=note)
    found |= {"loss": loss, "batch": batch}
    if not fit.has_law(loss):
        source = fit.by_points(loss, batch).source
        found |= {"form": source, "note": f"the {fit.law.name} law is unidentified: {source}"}
    return found, outside


def _critical(fit: "CriticalFit", run: dict[str, Any]) -> Answer:
    """Return the critical batch at a model size, a budget or both."""
    if "batch" in run or "loss" in run:
        return _critical_steps(fit, run)
    if not run:
        raise InputError("--params or --tokens: missing; a critical fit needs one, e.g. 7B")
    curves = [at.curve for at, one in zip(fit.fits, fit.critical, strict=True) if one.value]
    outside = [x for n in run for x in _outside(n, run[n], [getattr(c, n) for c in curves])]
    how = {"overhead": fit.overhead, "reference_batch": fit.reference}
    how |= {"quantity": fit.quantity, "unit": fit.unit}
    return {"critical_batch": fit.best_batch(**run)} | run | how, outside


def _critical_steps(fit: "CriticalFit", run: dict[str, Any]) -> Answer:
    """Return tokens and steps to the loss of a curve at a batch size."""
    if "batch" not in run:
        raise InputError("--batch: missing; with --loss it is needed, e.g. 64")
    if "tokens" in run:
        raise InputError("--tokens: not used with --batch; leave it out")
    batch = float(_batch(run))
    row = fit.predict(**{**run, "batch": batch}).iloc[0]
    found: dict[str, Any] = {}
    for name in ("tokens", "sequences", "steps"):
        if name in row:
            value, low, high = row[[name, f"{name}_low", f"{name}_high"]].tolist()
            found[name] = Estimate(value, low, high, fit.level)
    outside = [f"--{text}" for text in fit.outside_batches(row["loss"], batch)]
    return found | {"loss": row["loss"], "batch": batch, "form": row["note"]}, outside


def _loss(fit: "LossFit", given: dict[str, Any]) -> Answer:
    """Return the final loss of a run; without a batch at the best one."""
    params = given["params"]
    tokens = given["tokens"]
    seq_len = given.get("seq_len", fit.seq_len)
    if "batch" not in given:
        best = fit.best_batch(params, tokens)
        if (size := best.value) is None:
            raise InputError(f"--batch: missing, and B_opt is {best.note}; give a batch")
    elif seq_len is None:
        raise InputError("--seq-len: missing; the table has none: give the tokens of a sequence")
    else:
        size = _batch(given) * seq_len
    sizes = {"params": params, "tokens": tokens, "batch_tokens": size}
    rate = {"lr": given["lr"]} if "lr" in given else {}
    found = vars(fit.prediction(**sizes, **rate, extrapolate=True))
    return found | sizes | {"seq_len": seq_len}, fit.untested(sizes | rate)


def _curve(fit: "CurveFit", given: dict[str, Any]) -> Answer:
    """Return the loss at the end of a schedule."""
    tokens = given["tokens"]
    ends = (given.get(name, "0") for name in ("warmup", "decay"))
    run = Budget.read(given["batch"], tokens, fit.seq_len)
    schedule = run.schedule
    rate = rate_of(fit.peak_lr(given.get("lr")), run, *ends)
    plan = resolve(schedule, tokens, fit.seq_len)
    loss = laws.predict_schedule(fit, schedule, tokens, rate, extrapolate=True)
    found = {"loss": loss, "steps": plan.steps, "tokens": plan.tokens, "batch": str(schedule)}
    run = {"batch": schedule, "tokens": tokens, "lr": rate}
    return found, fit.untested(run)


def _equal(fit: "EqualFit", given: dict[str, Any]) -> Answer:
    """Return the loss of a batch size at equal cost."""
    batch = float(_batch(given))
    row = fit.predict(batch=batch).iloc[0]
    ends = [None if np.isnan(x) else float(x) for x in row[["loss", "loss_low", "loss_high"]]]
    note = "" if ends[0] is not None else "beyond the batch sizes measured"
    loss = Estimate(*ends, level=fit.level, note=note)
    return {"loss": loss, "batch": batch}, [f"--{text}" for text in fit.untested({"batch": batch})]


def _lr(fit: "LrFit", given: dict[str, Any]) -> Answer:
    """Return the best peak LR at a size."""
    for name in fit.law.variables if fit.law else ():
        if name not in given:
            raise InputError(f"{_flag(name)}: missing; the best LR depends on it; give it")
    sizes = {name: float(given[name]) for name in ("params", "tokens") if name in given}
    if "batch" in given:
        sizes["batch"] = fit.in_unit(_batch(given))
    found: dict[str, Any] = {"best_lr": fit.best_lr(**sizes), **sizes}
    if fit.misfits:
        found["note"] = "; ".join(fit.misfits)
    return found, [f"--{text}" for text in fit.untested(sizes)]


def _branches(fit: "BranchFit", given: dict[str, Any]) -> Answer:
    """Return the penalty of a larger batch size at a checkpoint."""
    run = {"tokens": given["tokens"], "batch": _batch(given)}
    row = fit.predict(**run).iloc[0]
    ends = row[["penalty", "penalty_low", "penalty_high"]].tolist()
    return {"penalty": Estimate(*ends, level=fit.level), **run}, [
        f"--{text}" for text in fit.untested(run)
    ]


def _own(fit: "OwnFit", given: dict[str, Any], extrapolate: bool) -> Output:
    """Predict the runs of a table, or one run by name, by a law of a user's own."""
    if "runs" in given:
        runs = read_own_tables(given["runs"], given.get("columns"))
        found = fit.predict(runs)
    else:
        runs = pd.DataFrame([{name: x for name, x in given.items() if name != "seq_len"}])
        found = fit.predict(**given)
    remarks = [note for note in found["note"] if note]
    _check_inside(remarks, extrapolate)
    known = [name for name in ("run", *fit.law.columns) if name in runs]
    table = pd.concat([runs[known].reset_index(drop=True), found.reset_index(drop=True)], axis=1)
    name = fit.law.measured
    unit = f" {fit.law.unit}" if fit.law.unit else ""
    first = found.iloc[0]
    one = Estimate(first[name], first[f"{name}_low"], first[f"{name}_high"], fit.level)
    line = f"Predicted {name}: {estimate(one)}{unit}, {fit.level:.0%} interval"
    line = line if len(found) == 1 else f"{len(found)} runs predicted"
    payload = {"kind": "prediction", "of": fit.KIND, "law": fit.law_name}
    payload |= {"runs": table.to_dict("records")}
    return Output(payload, line, [Table.of_frame(fit.law_name, table)], remarks)


def _batch(given: dict[str, Any]) -> int:
    """Return the number of sequences of --batch."""
    batch = parse_tokens(given["batch"], field="--batch")
    if batch < 1:
        raise InputError(f"--batch {given['batch']}: expected 1 sequence or more, e.g. 64")
    return batch


def _runs(fit: Any, given: dict[str, Any], extrapolate: bool) -> Output:
    """Predict the last loss of each run of a table."""
    length = given.get("seq_len") or (None if fit.seq_len is None else int(fit.seq_len))
    how = Reading.parse(given.get("columns"), length)
    if fit.KIND == "curve":
        table, warnings = read_run_table(given["runs"], how, need_loss=False)
    else:
        table, warnings = _final_losses(given["runs"], how)
        warnings += [] if fit.with_lr and "lr" in table else ["losses are at tuned LRs"]
    names = {"loss": "predicted", "loss_low": "low", "loss_high": "high", "note": "outside"}
    found = fit.predict(table).rename(columns=names)
    frame = table.assign(measured=table[loss_column(table)]).join(found)
    frame = frame.groupby("run", sort=False).tail(1)
    beyond = frame.loc[frame["outside"] != "", ["run", "outside"]].to_numpy()
    _check_inside([f"run {run}: {outside}" for run, outside in beyond], extrapolate)
    frame = frame.assign(error=frame["predicted"] - frame["measured"])
    known = frame["error"].dropna()
    rmse = rms(known) if len(known) else None
    frame = frame[[name for name in RUN_COLUMNS if name in frame]]
    payload = {"kind": "prediction", "of": fit.KIND, "law": fit.law_name, "rmse": rmse}
    payload |= {"runs": frame.to_dict("records")}
    answer = f"{len(frame)} runs predicted; rms error {number(rmse, 2)} nats over {len(known)}"
    title = f"last losses in nats, {fit.level:.0%} intervals of new runs"
    return Output(payload, answer, [Table.of_frame(title, frame)], warnings)


def _final_losses(paths: Sequence[Path], how: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read final losses; without a loss they are NaN, without names runs have numbers."""

    def read(table: pd.DataFrame, origin: Origin) -> pd.DataFrame:
        return laws.check_losses(table if "loss" in table else table.assign(loss=np.nan), origin)

    table, warnings = read_loss_tables(paths, how, read)
    numbers = pd.Series(np.arange(1, len(table) + 1).astype(str), table.index)
    named = table["run"].fillna(numbers) if "run" in table else numbers
    return table.assign(run=named), warnings


def _check_inside(outside: Sequence[str], extrapolate: bool) -> None:
    """Raise InputError if anything is outside, and extrapolation was not requested."""
    if outside and not extrapolate:
        raise InputError(f"{outside[0]}; predict within this range, or pass --extrapolate")


def _outside(name: str, value: float, measured: Sequence[float]) -> list[str]:
    """Return a line if a value is outside the range measured."""
    low = min(measured)
    high = max(measured)
    if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
        return []
    return [f"--{name} {number(value)}: outside the measured {number(low)} to {number(high)}"]


def _row(name: str, x: Any) -> dict[str, Any]:
    """Return an estimate or a number as a row of the table."""
    if not isinstance(x, Estimate):
        return {"quantity": name, "value": x}
    return {"quantity": name, "value": x.value, "low": x.low, "high": x.high, "note": x.why}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
