"""bss design: which runs narrow B_opt, a loss or an exponent most for what they cost."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bss.cli.kinds import read_fit
from bss.cli.output import Output, Table, add_output_arguments, drawing, measured_tokens, number
from bss.cli.output import progress as shown
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.design.candidates import Candidates, read_candidates
from bss.design.design import Design, design
from bss.design.goals import Goal
from bss.design.replay import Replayed, replayed
from bss.errors import InputError, check
from bss.laws import TableFit, fit_table
from bss.laws.final_loss.table import final_losses, read_losses
from bss.laws.fitting.estimate import Estimate, Options
from bss.units import parse_tokens
from bss.values import to_dict

RESAMPLES = 100
METHOD = "expected, of 90%; by the forms of the fit and where the optimum may lie"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss design`."""
    add = parser.add_argument
    text = "a table fit, as `bss fit table --json` prints it, a table of final losses, or a runs "
    text += "directory"
    add("fit", type=Path, nargs="?", metavar="FIT-or-TABLE", help=text)
    text = "what is to be known: B_opt[:N,D], loss:N,D or exponent[:N|:D]; B_opt by default"
    add("--goal", default="B_opt", help=text)
    add("--cost", default="flops", help="what runs cost: tokens, flops (by default) or hours")
    add("--speed", help="for hours: as 40Ktokens/s or 2e14FLOP/s")
    text = "a grid as batch=32..512,lr=1e-3..8e-3,params=60M|120M,tokens=2B,seeds=2 (steps of 2, "
    text += "of √2 behind :sqrt2), or a table of runs; by default an octave beyond the fit's"
    add("--candidates", metavar="GRID", help=text)
    add("--pick", type=int, default=3, help="runs at most, 3 by default")
    text = "choose among the runs of a finished table, and see by the others what came of it"
    add("--replay", type=Path, metavar="TABLE", help=text)
    add("--budget", default="5%", help="of a replay: share of what all its runs cost")
    text = "of a replay: judge by these (N, D), as params>=1B; repeatable, all by default"
    add("--judge", action="append", default=[], metavar="SIZES", help=text)
    add_reading_arguments(parser)
    add_output_arguments(parser, run, plot=True)


def run(options: argparse.Namespace) -> Output:
    """Says which runs come next.

    Examples:
        bss design LOSSES.csv --pick 2
        bss design LOSSES.csv --goal exponent --cost hours --speed 2e16FLOP/s --json
    """
    if (options.fit is None) == (options.replay is None):
        raise InputError("FIT-or-TABLE: give a fit or a table, or --replay TABLE, one of them")
    if options.replay is not None:
        return _replay(options)
    check(options.pick >= 1, "--pick", options.pick, "1 or more")
    fit = _fit(options)
    seq_len = options.seq_len or fit.seq_len
    grid = options.candidates
    told = design(
        fit,
        options.goal,
        candidates=grid and read_candidates(grid, seq_len, reading(options)),
        cost=options.cost,
        speed=options.speed,
        pick=options.pick,
    )
    notes = [f"spent so far: {told.spent:.3g} {told.unit}; {told.candidates} candidates; {METHOD}"]
    notes += [*[told.stopped] * bool(told.stopped), *told.notes]
    figure = drawing("design.design_figure", told)
    return Output(told.to_dict(), [design_table(told)], notes, figure=figure, first=told.first_line)


def _fit(options: argparse.Namespace) -> TableFit:
    """The fit that was given, or that of the table."""
    if options.fit.suffix == ".json":
        return read_fit(options.fit, "design", ("table",))
    table = _losses(options.fit, options)
    with shown() as report:
        return fit_table(table, options=Options(RESAMPLES), progress=report)


def _losses(path: Path, options: argparse.Namespace) -> pd.DataFrame:
    if not path.is_dir():
        return read_losses(path, reading(options))
    return final_losses(read_run_table(path, reading(options), only_finished=True)[0])


def _ends(at: Estimate, unit: float, digits: int) -> str:
    return " – ".join(number(end / unit, digits) for end in (at.low, at.high) if end is not None)


def design_table(told: Design) -> Table:
    """A row for each run, in their order."""
    unit, _, digits = told.shown
    size = told.seq_len or 1.0
    cells = {
        "params": lambda at: measured_tokens(at.params),
        "tokens": lambda at: measured_tokens(at.tokens),
        "batch": lambda at: number(at.batch_tokens / size, 3),
        "lr": lambda at: number(at.lr, 3),
        "seeds": lambda at: at.seeds,
        told.unit: lambda at: f"{at.cost:.3g}",
        "of spent": lambda at: f"{100 * at.share:.2g}%",
        "interval after": lambda at: _ends(at.after, unit, digits),
        "what for": lambda at: at.why,
    }
    return Table.of(f"runs to do next, for {told.goal}", told.runs, cells)


def _replay(options: argparse.Namespace) -> Output:
    """What each way of choosing would have come to on a finished table."""
    table = _losses(options.replay, options)
    table = table.loc[np.isfinite(table["loss"])].reset_index(drop=True)
    known = table[["params", "tokens"]].to_numpy(float)
    goal = Goal.parse(options.goal, known)
    varied = "lr" in table and table.groupby(["params", "tokens"])["lr"].nunique().max() > 2
    runs = Candidates.of(table, varied, options.cost, options.speed)
    share = _share(options.budget)
    with shown() as report:
        asked = _asked(table, options.judge)
        all_of_them = [*replayed(table, runs, goal, share, asked=asked, progress=report)]
    payload = {"kind": "replay", "goal": goal.text, "budget": share, "cost": options.cost,
               "runs": [to_dict(one) for one in all_of_them]}  # fmt: skip
    notes = ["medians over seeds; width: of the goal's interval, with departures as in all runs"
             + ", a logarithm of batches" * (goal.name == "B_opt")]  # fmt: skip
    return Output(payload, [replay_table(all_of_them, f"{goal.text}, {share:.3g} of all")], notes)


def replay_table(runs: Sequence[Replayed], title: str) -> Table:
    """A row for each method: medians over seeds."""
    methods = dict.fromkeys(one.method for one in runs)
    rows = []
    for method in methods:
        of = [one for one in runs if one.method == method]
        names = ("runs", "spent", "rmse", "r2", "width")
        middle = {n: float(np.median([getattr(one, n) for one in of])) for n in names}
        rows.append((method, *(number(middle[n], 3) for n in names), number(of[0].judged)))
    columns = (
        "chosen by",
        "runs",
        "of all cost",
        "rms error",
        "R² within (N, D)",
        "width",
        "judged",
    )
    return Table(title, columns, rows)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    check(0 < share < 1, "--budget", text, "a share of what all runs cost, as 5%")
    return share


def _asked(table: pd.DataFrame, conditions: Sequence[str]) -> np.ndarray:
    """[n], whether one of the conditions holds, or there is none."""
    asked = np.full(len(table), not conditions)
    for text in conditions:
        found = re.fullmatch(r"(params|tokens)(>=|<=)(.+)", text.replace(" ", ""))
        check(found is not None, "--judge", text, "sizes as params>=1B or tokens<=8B")
        assert found
        x, bound = table[found[1]].to_numpy(float), parse_tokens(found[3], field="--judge")
        asked |= x >= bound if found[2] == ">=" else x <= bound
    check(bool(asked.any()), "--judge", ", ".join(conditions), "sizes that some run has")
    return asked
