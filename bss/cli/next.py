"""bss next: which run to make next."""

from pathlib import Path

from bss.advice.next_run import described_run, next_runs
from bss.cells import Table
from bss.cli.options import NamedLaw, Trust
from bss.cli.output import Output, Show
from bss.cli.reading import GroupOption, in_group
from bss.tables.storage import read_table


def next(
    fit: Path,
    /,
    *,
    goal: str | None = None,
    candidates: Path | None = None,
    of: GroupOption = GroupOption(),
    named_law: NamedLaw = NamedLaw(),
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """List the runs that narrow a goal the most per FLOP.

    Args:
        fit: JSON of `bss fit --json`
        goal: es: B_opt@LOSS; critical: exponent:D or exponent:N; loss: B_opt@N,D or loss@N,D,B;
            curve: loss@SCHEDULE; by default the answer of the fit
        candidates: a table of runs to choose from (es: batch; critical: params, tokens; loss:
            also batch_tokens; curve: batch, tokens, lr); by default around those measured

    Examples:
        bss next FIT.json
        bss next FIT.json --goal B_opt@1.8
    """
    label, fitted = of.read(named_law, fit)
    wanted = goal or fitted.goal
    runs = next_runs(fitted, wanted, candidates and read_table(candidates)[0])
    warnings = runs.attrs["warnings"]
    payload = {"kind": "next", "goal": wanted, "runs": runs.to_dict("records")}
    payload |= {"warnings": warnings}
    title = f"{len(runs)} candidates, by variance removed per FLOP (or token, of one model)"
    answer = in_group(label, described_run(runs, wanted))
    return Output(payload, answer, [Table.of_frame(title, runs.head(10))], warnings)
