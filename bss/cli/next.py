"""bss next: which run to make next."""

from pathlib import Path

from bss.advice.next_run import described_run, next_runs
from bss.cells import Table
from bss.cli.kinds import read_fit
from bss.cli.options import TableOptions
from bss.cli.output import Output, Show
from bss.tables.storage import read_table

SHOWN = 10


def next(
    fit: Path,
    /,
    *,
    goal: str | None = None,
    candidates: Path | None = None,
    table: TableOptions = TableOptions(),
    show: Show = Show(),
) -> Output:
    """List the runs that narrow a goal the most per FLOP.

    Args:
        fit: JSON of `bss fit --json`
        goal: es: B_opt@LOSS; critical: exponent:D or exponent:N; table: B_opt@N,D or loss@N,D,B;
            curve: loss@SCHEDULE; by default the answer of the fit
        candidates: a table of runs to choose from (es: batch; critical: params, tokens; table:
            also batch; curve: batch, tokens, lr); by default around those measured

    Examples:
        bss next FIT.json
        bss next FIT.json --goal B_opt@1.85
    """
    fitted = read_fit(fit, "next", option="")
    given = candidates and read_table(candidates, table.reading())[0]
    wanted = goal or fitted.goal
    runs = next_runs(fitted, wanted, given)
    payload = {"kind": "next", "goal": wanted, "runs": runs.to_dict("records")}
    cost = "FLOP" if "FLOPs" in runs else "token"
    title = f"{len(runs)} candidates, the most variance removed per {cost} first"
    shown = Table.of_frame(title, runs.head(SHOWN))
    return Output(payload, described_run(runs, wanted), [shown])
