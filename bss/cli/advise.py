"""bss advise: the best batch size of a planned run, its interval, and what other sizes cost."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bss.advice import Advice, recommend
from bss.advice.advice import FITS_READ, PUBLISHED, used_batch
from bss.advice.receipt import Receipt
from bss.cells import Table
from bss.cli.options import Count, NamedLaw, Repeated, RunOptions, Trust
from bss.cli.output import Output, Show
from bss.cli.rules import note_of, rules_table
from bss.cli.step_time import TimeOptions
from bss.rules import RULES, Hyperparameters


def advise(
    *,
    run: RunOptions,
    fit: Annotated[Path | None, Parameter(name="--from")] = None,
    rule: Repeated = (),
    all_rules: Annotated[bool, Parameter(name="--all")] = False,
    batch_tokens: Count | None = None,
    batch: Count | None = None,
    time: TimeOptions = TimeOptions(),
    named_law: NamedLaw = NamedLaw(),
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """Recommend a batch size, and show the published rules.

    Args:
        fit: your own fit, from `bss fit es` or `bss fit loss` with --json; one from `bss fit lr`
            adds the peak LR
        rule: a rule, or package.module:ATTRIBUTE; may be repeated
        all_rules: also show rules without an answer, with the reason
        batch_tokens: a batch size in tokens that you use, e.g. 4M: adds a receipt of its costs
        batch: the same in sequences, e.g. 1024

    Examples:
        bss advise --params 350M --tokens 30B --seq-len 2048
        bss advise --params 350M --tokens 30B --seq-len 2048 --step-time "50ms + 2ms*B"
        bss advise --params 7B --tokens 2T --seq-len 4096 --batch-tokens 4M
    """
    own = None
    if fit is not None:
        # Imports pandas, which advice without fits does without.
        from bss.laws.groups import one_fit

        own = one_fit(named_law.read(fit, FITS_READ, "--from"), None, "--from", FITS_READ)[1]
    advice = recommend(run.setting(), own, rule or RULES)
    advice = replace(advice, source=PUBLISHED if advice.pooled else str(fit))
    step_time = time.read()
    used = used_batch(run.seq_len, batch_tokens, batch)
    if used is not None:
        advice = advice.with_receipt(used, step_time, time.price)
    payload = advice.to_dict()
    lines = advice.lines
    tables = [_rules_table(advice, show_all=all_rules)]
    if advice.sources:
        tables.insert(0, _sources_table(advice))
    if advice.receipt:
        tables.insert(0, _receipt_table(advice.receipt))
    if step_time is not None:
        from bss.advice.step_time import equal_time
        from bss.laws.step_time import sentence

        place, frame = equal_time(advice, own, step_time, time.price)
        lines.insert(1, f"To {place}: {sentence(frame)}")
        if not advice.receipt and (near := advice.known_losses()[1]):
            note = f"losses relative to the optimum are those of {near}"
            advice = replace(advice, warnings=(*advice.warnings, note))
            payload["warnings"] = [*advice.warnings]
        payload["equal_time"] = frame.to_dict("records")
        tables.insert(0, Table.of_frame(f"Time and cost to {place}", frame))
    return Output(payload, "\n".join(lines), tables, [*advice.warnings])


def _receipt_table(receipt: Receipt) -> Table:
    """Return the costs of multiples of the batch size that is used."""
    columns = ("factor", "batch_tokens", "sequences", "loss", "tokens", "steps", "days", "cost")
    title = "Receipt: tokens, steps, days and cost to the loss of the best batch size"
    return Table.of_records(title, receipt.rows, columns)


def _sources_table(advice: Advice) -> Table:
    """Return the peak LR and beta2 of each pooled source."""
    rows = [
        {
            "source": row["name"],
            "weight": f"{row['weight']:.0%}",
            "peak LR": row["lr"] and f"{row['lr']:.3g}",
            "beta2": row["beta2"],
            "params": row["params"],
            "tokens": row["tokens"],
        }
        for row in advice.sources
    ]
    return Table.of_records("Peak LR and beta2 of each source at its nearest measured run", rows)


def _rules_table(advice: Advice, *, show_all: bool) -> Table:
    """Return a row per rule that has an answer; with `show_all` also the others."""
    shares = {name: f"{share:.0%}" for name, share in advice.weights.items()}
    known = [one for one in advice.rules if show_all or one.hyperparameters != Hyperparameters()]
    rows = [one.to_dict() | {"weight": shares.get(one.name)} for one in known]
    if show_all:
        rows = [row | {"reason": note_of(one)} for row, one in zip(rows, known, strict=True)]
    return rules_table("", rows, advice.setting.seq_len)
