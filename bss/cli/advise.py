"""bss advise: the best batch size of a planned run, its interval, and what other sizes cost."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bss.advice import Advice
from bss.advice import advise as advice_for
from bss.advice.fit_advice import TOLERANCE, FitAdvice
from bss.cells import Table
from bss.cli.kinds import read_fit
from bss.cli.options import Count, Repeated
from bss.cli.output import Output, Show
from bss.cli.rules import note_of, rule_entry, rules_table
from bss.cli.step_time import TimeOptions, sentence
from bss.errors import check
from bss.rules import RULES, Hyperparameters, Setting
from bss.units import rounded_tokens

FACTORS = (0.5, 1.0, 2.0)


def advise(
    *,
    params: Count,
    active_params: Count | None = None,
    tokens: Count,
    seq_len: int,
    d_model: int | None = None,
    lr: float | None = None,
    ending: Literal["wsd", "cosine", "constant"] = "wsd",
    loss: float | None = None,
    noise_scale: Count | None = None,
    fit: Annotated[Path | None, Parameter(name="--from")] = None,
    rule: Repeated = (),
    all_rules: Annotated[bool, Parameter(name="--all")] = False,
    time: TimeOptions = TimeOptions(),
    show: Show = Show(),
) -> Output:
    """Recommend a batch size, and show the published rules.

    Args:
        params: non-embedding parameters, e.g. 85M
        active_params: mixture of experts: parameters that one token uses
        tokens: token budget, e.g. 2.5B
        seq_len: tokens per sequence, e.g. 2048
        d_model: width, for rules that need it
        lr: peak learning rate, for rules and curve fits that need it
        ending: learning-rate schedule of a curve fit
        loss: expected final loss in nats per token, for rules
        noise_scale: gradient noise scale in tokens, for rules
        fit: your own fit, from `bss fit ... --json`
        rule: a rule, or package.module:ATTRIBUTE; may be repeated
        all_rules: also show rules without an answer, with the reason

    Examples:
        bss advise --params 350M --tokens 30B --seq-len 2048
        bss advise --params 350M --tokens 30B --seq-len 2048 --all
        bss advise --params 350M --tokens 30B --seq-len 2048 --step-time "50ms + 2ms*B"
    """
    if active_params is not None:
        check(active_params <= params, "--active-params", active_params, f"1 to all of {params:,}")
    setting = Setting(active_params or params, tokens, seq_len, d_model=d_model, loss=loss,
                      noise_scale=noise_scale, lr=lr)  # fmt: skip

    own = None if fit is None else _own_fit(fit)

    def ask(size: float) -> Advice:
        at = replace(setting, params=size)
        return advice_for(at, own and _fit_advice(own, at, ending), rule or RULES)

    advice = ask(setting.params)
    warnings = [*advice.warnings]
    lines, payload = answer_lines(advice, fit), _payload(advice, fit)
    if active_params is not None:
        whole = answer_lines(ask(params), fit)[0]
        warnings.insert(
            0, "no source has a mixture of experts; the answer is for active parameters"
        )
        sizes = {"active_params": active_params, "total_params": params}
        payload["experts"] = sizes | {"total": whole}
        lines.append(f"For all {rounded_tokens(params)} parameters: {whole}")
    payload["warnings"] = warnings
    tables = [_rules_table(advice, show_all=all_rules)]
    if (step_time := time.read()) is not None:
        place, frame = _time_table(advice, own, step_time, time.price)
        lines.insert(1, f"{place.capitalize()}: {sentence(frame)}")
        payload["equal_time"] = frame.to_dict("records")
        tables.insert(0, Table.of_frame(f"Time and cost, {place}", frame))
    return Output(payload, "\n".join(lines), tables, warnings)


def _time_table(advice: Advice, own: Any, step_time: Any, price: float) -> tuple[str, Any]:
    """Return what is reached, and the batch sizes that reach it soonest and cheapest."""
    from bss.advice.step_time import of_losses, of_targets

    if own is not None and own.KIND == "es":
        target, frame = of_targets(own, advice, step_time, price)
        return f"to loss {target:.4g}", frame
    return "to the loss of the best batch", of_losses(advice, step_time, price)


def answer_lines(advice: Advice, fit: Path | None) -> list[str]:
    """Return the recommendation, the intervals, the costs and the source."""
    source = f"{fit}; inside its range"
    if pooled := advice.pooled:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in pooled.weights.items())
        source = f"{shares}; inside the range of {' and '.join(pooled.inside) or 'none'}"
    lines = [_first_line(advice), f"Source: {source}"]
    if advice.batch.value is None:
        return lines
    extrapolated = "" if advice.in_range else ", extrapolated"
    interval = f"90% interval of the optimum{extrapolated}: "
    interval += _ends(advice.batch.low, advice.batch.high)
    if any(tolerance := _tolerance(advice)):
        interval += f"; within {TOLERANCE:g} nats of it: {_ends(*tolerance)}"
    half, twice = (advice.losses.loss_at(factor) for factor in (0.5, 2.0))
    cost = "The costs of half and twice are unknown"
    if half is not None and twice is not None:
        cost = f"Half of it costs {half:.4f} nats, twice {twice:.4f}"
    lines[1:1] = [interval, f"{cost}; steps {_steps(advice, _size(advice)):,}"]
    return lines


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


def _tolerance(advice: Advice) -> tuple[float | None, float | None]:
    """Return the batch sizes within tolerance of the optimum, in tokens."""
    low, high = advice.losses.tolerance()
    value = advice.batch.value or 0.0
    return low and low * value, high and high * value


def _size(advice: Advice) -> float:
    """Return the recommended batch size in tokens, or the optimum if none is recommended."""
    whole = (advice.sequences or 0) * advice.setting.seq_len
    return whole or advice.batch.value or math.nan


def _steps(advice: Advice, batch: float) -> int:
    return max(1, round(advice.setting.tokens / batch))


def _own_fit(path: Path) -> Any:
    """Return the user's own fit."""
    from bss.advice.of_fit import ADVISORS

    return read_fit(path, "advise", [*ADVISORS])


def _fit_advice(own: Any, setting: Setting, ending: str) -> FitAdvice:
    """Return the answer of the user's own fit."""
    from bss.advice.of_fit import fit_advice

    return fit_advice(own, setting, ending)


def _payload(advice: Advice, fit: Path | None) -> dict[str, Any]:
    size = _size(advice)
    costs = [
        {
            "factor": factor,
            "batch_tokens": factor * size,
            "loss": advice.losses.loss_at(factor),
            "steps": _steps(advice, factor * size),
        }
        for factor in (FACTORS if advice.batch.value else ())
    ]
    return {
        "kind": "advice",
        "advice": _first_line(advice),
        "setting": {**asdict(advice.setting), "compute": advice.setting.compute},
        "in_range": advice.in_range,
        "recommended_sequences": advice.sequences,
        "batch_tokens": {end: getattr(advice.batch, end) for end in ("value", "low", "high")},
        "tolerance": dict(zip(("low", "high"), _tolerance(advice), strict=True)),
        "costs": costs,
        "source": "published" if advice.pooled else str(fit),
        "weights": _weights(advice),
        "inside": advice.pooled.inside if advice.pooled else [],
        "rules": [rule_entry(answer) for answer in advice.rules],
    }


def _rules_table(advice: Advice, *, show_all: bool) -> Table:
    """Return a row per rule, and if `show_all` those without an answer."""
    weights = {name: f"{share:.0%}" for name, share in _weights(advice).items()}
    rows = [
        rule_entry(answer)
        | {"weight": weights.get(answer.name)}
        | ({"reason": note_of(answer)} if show_all else {})
        for answer in advice.rules
        if show_all or answer.hyperparameters != Hyperparameters()
    ]
    return rules_table("", rows, advice.setting.seq_len)


def _weights(advice: Advice) -> dict[str, float]:
    """Return the share of each pooled source; empty for a user's own fit."""
    return advice.pooled.weights if advice.pooled else {}
