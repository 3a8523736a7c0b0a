"""The runs to do next, by a fit of final losses, as a value."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from bss import values
from bss.cells import estimate, number
from bss.design.belief import LEVEL, Belief
from bss.design.candidates import Candidates, cost_of
from bss.design.choose import Choice, narrowest
from bss.design.goals import Goal, Runs
from bss.design.law import Law
from bss.errors import check
from bss.laws import TableFit
from bss.laws.fitting.estimate import Estimate
from bss.units import rounded_tokens

UNTOLD = 6.0  # of log B from its value, from where an end is told by nothing
OCTAVE = np.array([0.5, 1.0, 2.0])


@dataclass(frozen=True)
class NextRun:
    """One run to do.

    Attributes:
        params, tokens, batch_tokens: N, D, and B in tokens.
        lr: peak rate; None where the fit's rates do not vary: one that is tuned.
        seeds: in how many it is done.
        cost: of all its seeds.
        share: that over what all runs of the fit cost.
        purpose: "narrow" the goal's interval, or "check" the law.
        worth: whether it narrows the goal by more than its price; a check is not asked.
        why: for people.
        before, after: the goal's interval before it, and after it and those above it.
    """

    params: float
    tokens: float
    batch_tokens: float
    lr: float | None
    seeds: int
    cost: float
    share: float
    purpose: Literal["narrow", "check"]
    worth: bool
    why: str
    before: Estimate
    after: Estimate

    def said(self, seq_len: float | None) -> str:
        """Where it is and what it is for, for people."""
        N, D = (rounded_tokens(x, 4) for x in (self.params, self.tokens))
        batch = number(self.batch_tokens / (seq_len or 1), 3) + " tokens" * (not seq_len)
        rate = "" if self.lr is None else f", rate {self.lr:.2g}"
        seeds = f", {self.seeds} seeds" if self.seeds > 1 else ""
        return f"batch {batch}{rate} at {N} and {D} tokens{seeds}: {self.why}"


@dataclass(frozen=True)
class Design:
    """What to do next.

    Attributes:
        goal: in words.
        quantity: B_opt, loss or exponent.
        unit: of costs: tokens, flops or hours.
        spent: what all runs of the fit cost.
        candidates: how many were looked at.
        before, after: the goal's interval without and with the runs.
        runs: to do, in their order.
        stopped: from where on nothing is worth its price; empty where more would be.
        notes: what must be said with it.
        seq_len: tokens per sequence, if there is one.
        measured: the runs of the fit, to draw them.
    """

    goal: str
    quantity: str
    unit: str
    spent: float
    candidates: int
    before: Estimate
    after: Estimate
    runs: tuple[NextRun, ...]
    stopped: str
    notes: tuple[str, ...]
    seq_len: float | None
    measured: Runs

    @property
    def shown(self) -> tuple[float, str, int]:
        """The unit of the goal, its name, and to how many digits it is told."""
        if self.quantity != "B_opt":
            return 1.0, "", 5 if self.quantity == "loss" else 3
        return self.seq_len or 1.0, " sequences" if self.seq_len else " tokens", 3

    @property
    def first_line(self) -> str:
        """The goal now, and as it is expected after the runs."""
        unit, noun, digits = self.shown
        before, after = (estimate(at, unit, digits) for at in (self.before, self.after))
        many = f"{len(self.runs)} run" + "s" * (len(self.runs) > 1)
        return f"{self.goal}: {before}{noun}; after {many} expected: {after}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without the runs of the fit."""
        entry = values.to_dict(self)
        del entry["measured"]
        said = "; ".join(
            [f"next, for {self.first_line}", *(one.said(self.seq_len) for one in self.runs)]
        )
        return {"kind": "design", "says": said} | entry


def design(
    fit: TableFit,
    goal: str = "B_opt",
    *,
    candidates: pd.DataFrame | None = None,
    cost: str = "flops",
    speed: str | None = None,
    pick: int = 3,
) -> Design:
    """The runs that narrow a goal most for their price.

    Args:
        fit: of final losses.
        goal: as `Goal.parse` reads it.
        candidates: as `read_candidates` gives them; what they leave out is as in the fit, and None
            is all of that: its (N, D), its batches and the best rate of each, and an octave beyond.
        cost: tokens, flops or hours.
        speed: for hours.
        pick: how many at most.

    Raises:
        InputError: a wrong option, a candidate of a size that the fit was not tested for, one with
            a rate where those of the fit do not vary, or a goal that no candidate moves.
    """
    check(pick >= 1, "--pick", pick, "1 or more")
    law, least = Law.of(fit), fit.seq_len or 1.0
    cells = np.array([[at.params, at.tokens] for at in fit.optima])
    aim = Goal.parse(goal, cells)
    given = candidates if candidates is not None else pd.DataFrame(index=[0])
    options = Candidates.of(_completed(fit, given), law.space.rates is not None, cost, speed)
    for params, tokens in {*zip(options.runs.params, options.runs.tokens, strict=True)}:
        fit.check_tested({"params": float(params), "tokens": float(tokens)})
    smallest = float(options.runs.batch_tokens.min())
    check(
        smallest >= least, "--candidates", f"a batch of {smallest:g} tokens", "a sequence or more"
    )
    done, count = _done(fit)
    spent = float(cost_of(done, cost, speed) @ count)
    belief = Belief.of(law, aim, options.runs)
    choices, stopped = narrowest(belief, options.cost, options.seeds, spent, pick)
    runs = tuple(_next_run(one, aim, belief.value, options, spent) for one in choices)
    before = _estimate(aim, belief.value, belief.interval)
    after = runs[-1].after if runs else before
    return Design(
        aim.text, aim.name, cost, spent, len(options.cost), before, after, runs, stopped,
        _notes(fit, aim), fit.seq_len, done,
    )  # fmt: skip


def _notes(fit: TableFit, aim: Goal) -> tuple[str, ...]:
    """What the fit's design hides from it, what it was not tested for, what it does not tell."""
    for N, D in aim.cells:
        if why := fit.untested({"params": N, "tokens": D}):
            return (f"{why}: there the interval is of the forms alone",)
    if aim.name == "B_opt":
        for at in fit.optima:
            here = np.allclose((at.params, at.tokens), aim.cells[0], rtol=0.03)
            if here and at.batch.value is None and at.batch.status != "one rate":
                return (f"the fit gives no B_opt there: {at.batch.note}",)
    if fit.rates is None and any(at.batch.status == "one rate" for at in fit.optima):
        why = "all batches share a rate, so B_opt is that at this rate; two batches, each at half "
        return (f"{why}and twice of it, would tell whether the best one moves it",)
    return ()


def _completed(fit: TableFit, given: pd.DataFrame) -> pd.DataFrame:
    """Candidates with all of params, tokens, batch_tokens and, where rates vary, lr."""
    if not {"params", "tokens"} & {*given}:
        cells = pd.DataFrame([(at.params, at.tokens) for at in fit.optima])
        given = given.merge(cells.set_axis(["params", "tokens"], axis=1), how="cross")
    for name in {"params", "tokens"} - {*given}:
        sizes = sorted({getattr(at, name) for at in fit.optima})
        given = given.merge(pd.DataFrame({name: sizes}), how="cross")
    if "batch_tokens" not in given:
        seen = fit.tested["batch_tokens"]
        octaves = np.arange(-1, np.round(np.log2(seen.high / seen.low)) + 2)
        batches = seen.low * 2**octaves
        batches = batches[batches >= (fit.seq_len or 1.0)]
        given = given.merge(pd.DataFrame({"batch_tokens": batches}), how="cross")
    check(
        fit.rates is not None or "lr" not in given,
        "--candidates", "lr", "none: rates of the fit do not vary, its losses are of tuned ones",
    )  # fmt: skip
    if fit.rates is not None and "lr" not in given:
        best = fit.rates.best_lr(
            *(given[n].to_numpy() for n in ("params", "tokens", "batch_tokens"))
        )
        given = given.assign(best=best).merge(pd.DataFrame({"times": OCTAVE}), how="cross")
        given["lr"] = [float(f"{rate:.2g}") for rate in given["best"] * given["times"]]
    return given


def _done(fit: TableFit) -> tuple[Runs, np.ndarray]:
    """The runs of a fit, and how many each stands for."""
    points = fit.points if fit.rates is None else fit.rates.points
    count = points.count if fit.rates is not None else fit.points.count * fit.points.rates
    lr = None if fit.rates is None else points.lr
    runs = Runs(points.params, points.tokens, points.batch, lr)
    return runs, np.maximum(count, 1.0)


def _next_run(one: Choice, goal: Goal, value: float, options: Candidates, spent: float) -> NextRun:
    i, rates = one.run, options.runs.lr
    before, after = (_estimate(goal, value, ends) for ends in (one.before, one.after))
    narrows = 1 - (one.after[1] - one.after[0]) / (one.before[1] - one.before[0])
    why = f"narrows the interval by {narrows:.0%}" + ", not worth it" * (not one.worth)
    if one.checks:
        why = f"checks the law: its forms lie {one.doubt:.1f} standard deviations of this run apart"
    cost = float(options.cost[i])
    return NextRun(
        params=float(options.runs.params[i]),
        tokens=float(options.runs.tokens[i]),
        batch_tokens=float(options.runs.batch_tokens[i]),
        lr=None if rates is None else float(rates[i]),
        seeds=int(options.seeds[i]),
        cost=cost,
        share=cost / spent,
        purpose="check" if one.checks else "narrow",
        worth=one.worth,
        why=why,
        before=before,
        after=after,
    )


def _estimate(goal: Goal, value: float, ends: tuple[float, float]) -> Estimate:
    """In tokens for a batch, whose ends are none where nothing tells them; as it is otherwise."""
    if goal.name != "B_opt":
        return Estimate(float(value), *map(float, ends), level=LEVEL)
    low, high = (float(np.exp(end)) if abs(end - value) < UNTOLD else None for end in ends)
    return Estimate(float(np.exp(value)), low, high, level=LEVEL)
