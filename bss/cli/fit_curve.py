"""bss fit curve: the functional scaling law, from loss curves under any LR and batch schedule."""

import argparse
from pathlib import Path

from bss.cli.fitting import add_fit_arguments, fit_options
from bss.cli.output import Output, Table, drawing, estimate, number, progress
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.laws import CurveFit, fit_curve
from bss.laws.fitting.estimate import Estimate
from bss.laws.functional.problem import CLOCKS
from bss.tables.reading import without
from bss.units import parse_tokens

LAW = "L = L_0 + c_1 (1 + T/T_0)^-s + ∫ [A_0 + A_1 (1 + u/T_0)^-s] ν (1 + c_K (T − u))^-q du"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit curve`."""
    add = parser.add_argument
    text = (
        "a runs directory, or CSV or Parquet: run, batch, lr, loss (or eval_loss; missing where a "
        "row has the schedule alone), step or tokens, seq_len or batch_tokens; constant runs, and "
        "some that change batch or rate"
    )
    add("runs", type=Path, help=text)
    add_reading_arguments(parser)
    add("--clock", choices=CLOCKS, help="by default the one that predicts left-out runs better")
    add("--warmup", default="0", help="tokens of warm-up, whose losses are left out")
    text = "leave losses before out: tokens, or a percentage of the longest run"
    add("--since", default="0", help=text)
    add_fit_arguments(parser, run, resamples=100)


def run(options: argparse.Namespace) -> Output:
    """Fits the law."""
    how = fit_options(options)
    runs, remarks = read_run_table(options.runs, reading(options), need_loss=False)
    warmup = parse_tokens(options.warmup, field="--warmup")
    since = parse_tokens(options.since, field="--since", total=max(int(n) for n in runs["tokens"]))
    runs = without(runs, options.drop)
    with progress() as report:
        given = {"clock": options.clock, "warmup": warmup, "since": since}
        fit = fit_curve(runs, **given, options=how, report=report)
    known = fit.easy_by.value is not None
    notes = [
        f"{LAW}, ν = lr^p/B^m",
        f"rms error of log loss {fit.rmse:.2g} over {fit.losses} losses of {fit.runs} runs",
        *([f"{fit.losses} of {fit.measured} losses read"] if fit.losses < fit.measured else []),
        *(
            f"{name} clock: {error:.2g} at the last losses of left-out runs"
            for name, error in fit.left_out_rmse.items()
        ),
        *([f"{_task(fit.easy_by)}: s − (q − 1) = {estimate(fit.easy_by)}"] * known),
        *(f"warning: {text}" for text in (*fit.warnings, *remarks)),
    ]
    figure = drawing("curves.fitted_curves", fit, runs, warmup=warmup)
    return Output(fit.to_dict(), [parameters_table(fit)], notes, figure=figure)


def _task(easy_by: Estimate) -> str:
    """Easy or hard, where the interval has one sign."""
    low, high = easy_by.low, easy_by.high
    if low is not None and low > 0:
        return "an easy task"
    return "a hard task" if high is not None and high < 0 else "easy or hard is undecided"


def parameters_table(fit: CurveFit) -> Table:
    """The parameters with their intervals; a held one is the value that predictions use."""
    law = fit.law._asdict()
    rows = [
        (name, estimate(value), number(float(law[name])), value.note.partition(":")[0])
        for name, value in fit.parameters.items()
    ]
    status = fit.status if fit.identified or fit.status != "converged" else "noise unidentified"
    title = f"functional scaling law, {fit.clock} clock, {status}"
    return Table(title, ("parameter", "estimate", "in predictions", ""), rows)
