"""bss score: what was registered, against the runs that were trained after."""

import argparse
from pathlib import Path

import pandas as pd

from bss.cells import estimate
from bss.cli.output import Output, Table, add_output_arguments, number
from bss.predictions.ancestry import check_first
from bss.predictions.registration import read_registration
from bss.predictions.score import ALL, LAW, Score, Scored, score, score_entry
from bss.sweeps.table import OUTCOME, outcomes
from bss.tables.columns import need
from bss.tables.storage import read_table

PREDICTIONS = Path("results/predictions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss score`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="of the registration, as `bss register` wrote it")
    text = "runs directory, or a table of how they ended"
    add("--runs", type=Path, required=True, help=text)
    add("--predictions", type=Path, default=PREDICTIONS, help="directory of registrations")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Scores a registration once git has told that it came first.

    Examples:
        bss score NAME --runs runs/mine
        bss score NAME --runs OUTCOMES.csv --json
    """
    file = options.predictions / f"{options.name}.json"
    registration = read_registration(file)
    ended = _ended(options.runs, registration.runs)
    first = check_first(file, ended)
    scores = score(registration, ended)
    entry = score_entry(scores, file, first)
    return Output(entry, [*_tables(scores)], _notes(scores, file, first))


def _ended(runs: Path, registered: list[str]) -> pd.DataFrame:
    """How the registered runs ended: of run directories, or of a table."""
    if runs.is_dir():
        return outcomes(runs, registered)
    table, origin = read_table(runs)
    table = table if "status" in table else table.assign(status="finished")
    need(table, origin, *OUTCOME)
    return table.loc[table["run"].isin(registered)]


def _tables(scores: Score) -> list[Table]:
    each = [
        (one.name, one.ending, number(one.predicted[LAW]), number(one.measured), _told(one))
        for one in scores.schedules
    ]
    judged = [
        (ending, name, *map(estimate, (one.error, one.coverage, one.rank, one.differences)))
        for ending, predictors in scores.judged.items()
        for name, one in predictors.items()
    ]
    compared = [
        (ending, name, estimate(less))
        for ending, pairs in scores.compared.items()
        for name, less in pairs.items()
    ]
    covers = f"in its {scores.nominal:.0%}"
    columns = ("ending", "by", "median |error|, %", covers, "rank correlation", "differences")
    title = f"{len(scores.schedules)} schedules; {scores.level:.0%} intervals over schedules"
    return [
        Table(scores.metric, ("schedule", "ending", "predicted", "measured", covers), each),
        Table(title, columns, judged),
        *([Table("mean |error|, %", ("ending", "A - B", "A - B"), compared)] if compared else []),
    ]


def _told(one: Scored) -> str:
    return "failed" if one.measured is None else "yes" if one.covered else "no"


def _notes(scores: Score, file: Path, first: str) -> list[str]:
    notes = [f"{file} was committed in {first[:12]}, and every run came after"]
    for failure in scores.failures:
        notes.append(f"failed: run {failure.run} of {failure.schedule}: {failure.why}")
    failed = sum(one.measured is None for one in scores.schedules)
    if failed:
        notes.append(
            f"{failed} of {len(scores.schedules)} schedules failed, by {len(scores.failures)} of "
            f"{scores.runs} runs; their error is infinite, ranks and differences are of the others"
        )
    for name, less in scores.compared[ALL].items():
        if less.low is not None and less.high is not None:
            sign = "lower" if less.high < 0 else "higher" if less.low > 0 else "not shown to differ"
            notes.append(f"{name}: error {sign}, {estimate(less)} % of the loss")
    return notes
