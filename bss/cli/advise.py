"""bss advise: the best batch size of a planned run, its interval, and what other sizes cost."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bss.advice import Advice
from bss.advice import advise as recommend
from bss.advice.fit_advice import TOLERANCE
from bss.advice.of_fit import fit_advice
from bss.cells import Table
from bss.cli.options import Repeated, RunOptions, Trust
from bss.cli.output import Output, Show
from bss.cli.rules import note_of, rule_entry, rules_table
from bss.cli.step_time import TimeOptions
from bss.laws import read_fit
from bss.rules import RULES, Hyperparameters
from bss.units import rounded_tokens

FACTORS = (0.5, 1.0, 2.0)


def advise(
    *,
    run: RunOptions,
    fit: Annotated[Path | None, Parameter(name="--from")] = None,
    rule: Repeated = (),
    all_rules: Annotated[bool, Parameter(name="--all")] = False,
    time: TimeOptions = TimeOptions(),
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """Recommend a batch size, and show the published rules.

    Args:
        fit: your own fit, from `bss fit es` or `bss fit loss` with --json
        rule: a rule, or package.module:ATTRIBUTE; may be repeated
        all_rules: also show rules without an answer, with the reason

    Examples:
        bss advise --params 350M --tokens 30B --seq-len 2048
        bss advise --params 350M --tokens 30B --seq-len 2048 --step-time "50ms + 2ms*B"
    """
    setting = run.setting()
    own = None if fit is None else read_fit(fit, ("es", "loss"), "--from")
    advice = recommend(setting, own and fit_advice(own, setting), rule or RULES)
    payload, warnings = _payload(advice, fit), [*advice.warnings]
    lines, tables = _lines(advice, payload), [_rules_table(advice, show_all=all_rules)]
    if (step_time := time.read()) is not None:
        from bss.advice.step_time import equal_time
        from bss.laws.step_time import sentence

        place, frame = equal_time(advice, own, step_time, time.price)
        lines.insert(1, f"To {place}: {sentence(frame)}")
        payload["equal_time"] = frame.to_dict("records")
        tables.insert(0, Table.of_frame(f"Time and cost to {place}", frame))
    return Output(payload | {"warnings": warnings}, "\n".join(lines), tables, warnings)


def _payload(advice: Advice, fit: Path | None) -> dict[str, Any]:
    """Return the advice as JSON: the answer, its interval, the costs of others and the sources."""
    batch, setting = advice.batch, advice.setting
    ends = (end and end * (batch.value or 0) for end in advice.losses.tolerance())
    size = (advice.sequences or 0) * setting.seq_len or batch.value
    costs = [
        {
            "factor": factor,
            "batch_tokens": factor * size,
            "loss": advice.losses.loss_at(factor),
            "steps": max(1, round(setting.tokens / (factor * size))),
        }
        for factor in FACTORS
        if size
    ]
    return {
        "kind": "advice",
        "advice": _first_line(advice),
        "setting": {**asdict(setting), "compute": setting.compute},
        "in_range": advice.in_range,
        "recommended_sequences": advice.sequences,
        "batch_tokens": {end: getattr(batch, end) for end in ("value", "low", "high")},
        "tolerance": dict(zip(("low", "high"), ends, strict=True)),
        "costs": costs,
        "source": "published" if advice.pooled else str(fit),
        "weights": advice.weights,
        "inside": advice.pooled.inside if advice.pooled else [],
        "rules": [rule_entry(answer) for answer in advice.rules],
    }


def _lines(advice: Advice, payload: dict[str, Any]) -> list[str]:
    """Return the recommendation, the intervals, the costs and the source, of the JSON."""
    source = f"Source: {payload['source']}; inside its range"
    if advice.pooled:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in advice.weights.items())
        source = f"Source: {shares}; inside the range of "
        source += " and ".join(payload["inside"]) or "none"
    if not payload["costs"]:
        return [payload["advice"], source]
    interval = f"90% interval of the optimum{'' if advice.in_range else ', extrapolated'}: "
    interval += _ends(advice.batch.low, advice.batch.high)
    if any(payload["tolerance"].values()):
        interval += f"; within {TOLERANCE:g} nats of it: {_ends(**payload['tolerance'])}"
    half, one, twice = payload["costs"]
    cost = "The costs of half and twice are unknown"
    if half["loss"] is not None and twice["loss"] is not None:
        cost = f"Half of it costs {half['loss']:.4f} nats, twice {twice['loss']:.4f}"
    return [payload["advice"], interval, f"{cost}; steps {one['steps']:,}", source]


def _first_line(advice: Advice) -> str:
    seq_len, batch = advice.setting.seq_len, advice.batch
    if advice.sequences is not None:
        size = rounded_tokens(advice.sequences * seq_len)
        return f"Recommended batch: {size} tokens ({advice.sequences:,} sequences of {seq_len:,})"
    if not advice.in_range:
        return "No recommendation: the setting is out of range of every source"
    return f"No recommendation: the runs bound the optimum, {_ends(batch.low, batch.high)} tokens"


def _ends(low: float | None, high: float | None) -> str:
    """Return "LOW to HIGH" in tokens, or the one end that is known."""
    if low and high:
        return f"{rounded_tokens(low)} to {rounded_tokens(high)}"
    return f"at least {rounded_tokens(low)}" if low else f"at most {rounded_tokens(high or 0)}"


def _rules_table(advice: Advice, *, show_all: bool) -> Table:
    """Return a row per rule that has an answer; with `show_all` also the others."""
    shares = {name: f"{share:.0%}" for name, share in advice.weights.items()}
    known = [one for one in advice.rules if show_all or one.hyperparameters != Hyperparameters()]
    rows = [rule_entry(one) | {"weight": shares.get(one.name)} for one in known]
    if show_all:
        rows = [row | {"reason": note_of(one)} for row, one in zip(rows, known, strict=True)]
    return rules_table("", rows, advice.setting.seq_len)
