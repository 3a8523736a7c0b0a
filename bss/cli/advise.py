"""bss advise: the best batch size of a planned run, its interval, and what other sizes cost."""

import argparse
import math
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from bss.advice import Advice, FitAdvice, advise
from bss.advice.fit_advice import TOLERANCE
from bss.cli.kinds import KINDS, read_fit
from bss.cli.output import Output, Table, add_output_arguments, number, option
from bss.cli.rules import note_of, rule_entry, setting_of, size_text
from bss.errors import InputError, check
from bss.rules import RULES, Answer, Hyperparameters, Setting, non_embedding
from bss.units import parse_tokens, rounded_tokens

ENDINGS = ("wsd", "cosine", "constant")
FACTORS = (0.5, 1.0, 2.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bss advise`."""
    add = parser.add_argument
    add("--params", help="non-embedding parameters, e.g. 85M; or give --total-params")
    add("--total-params", help="parameters with embeddings; needs --vocab and --d-model")
    add("--vocab", type=int, help="tokens of the vocabulary, for --total-params")
    add("--active-params", help="mixture of experts: parameters that one token uses")
    add("--tied", action="store_true", help="--total-params has one matrix for both embeddings")
    add("--d-model", type=int, help="width, for --total-params and for rules that need it")
    add("--tokens", required=True, help="token budget, e.g. 2.5B")
    add("--seq-len", type=int, required=True, help="tokens per sequence, e.g. 2048")
    add("--lr", type=float, help="peak LR, for rules and curve fits that need it")
    add("--ending", choices=ENDINGS, default="wsd", help="LR schedule of a curve fit; wsd")
    add("--loss", type=float, help="expected final loss in nats per token, for rules")
    add("--noise-scale", help="gradient noise scale in tokens, for rules")
    add("--from", dest="fit", type=Path, help="your own fit, from `bss fit ... --json`")
    add("--rule", action="append", help="a rule, or package.module:ATTRIBUTE; repeatable")
    add("--all", action="store_true", help="also show rules without an answer, with the reason")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Print the recommended batch size and the published rules.

    Examples:
        bss advise --params 350M --tokens 30B --seq-len 2048
        bss advise --params 350M --tokens 30B --seq-len 2048 --all
    """
    total = _params(options)
    active = _active(options, total)
    advice = _advice(options, active or total)
    warnings = [*advice.warnings]
    lines, payload = answer_lines(advice, options.fit), _payload(advice, options.fit)
    if active is not None:
        whole = answer_lines(_advice(options, total), options.fit)[0]
        warnings.insert(
            0, "no source has a mixture of experts; the answer is for active parameters"
        )
        payload["experts"] = {"active_params": active, "total_params": total, "total": whole}
        lines.append(f"For all {rounded_tokens(total)} parameters: {whole}")
    payload["warnings"] = warnings
    notes = [f"warning: {text}" for text in warnings]
    table = _rules_table(advice, show_all=options.all)
    return Output(payload, [table], notes, first="\n".join([*lines, ""]))


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


def _advice(options: argparse.Namespace, params: float) -> Advice:
    """Return the advice for a number of parameters."""
    setting = setting_of(options, params=params)
    return advise(setting, _fit_advice(options, setting), options.rule or RULES)


def _active(options: argparse.Namespace, total: float) -> float | None:
    """Return the parameters that one token uses; None for a dense model."""
    if options.active_params is None:
        return None
    active = parse_tokens(options.active_params, field="--active-params")
    if options.total_params is not None:
        active = _without_embeddings(options, active)
    check(0 < active <= total, "--active-params", active, f"1 to all of {total:,.0f}")
    return active


def _params(options: argparse.Namespace) -> float:
    if (options.params is None) == (options.total_params is None):
        raise InputError("--params: give it, non-embedding, or --total-params, one of them")
    if options.params is not None:
        if options.vocab is not None or options.tied:
            given = "--vocab" if options.vocab is not None else "--tied"
            raise InputError(f"{given}: goes with --total-params; leave it out with --params")
        return parse_tokens(options.params, field="--params")
    total = parse_tokens(options.total_params, field="--total-params")
    for name in ("vocab", "d_model"):
        if getattr(options, name) is None:
            raise InputError(f"{option(name)}: missing; --total-params needs it")
    return _without_embeddings(options, total)


def _without_embeddings(options: argparse.Namespace, params: float) -> float:
    return non_embedding(params, options.vocab, options.d_model, tied=options.tied)


def _fit_advice(options: argparse.Namespace, setting: Setting) -> FitAdvice | None:
    """Return the answer of the user's fit; None without one."""
    if options.fit is None:
        return None
    fit = read_fit(options.fit, "advise", [name for name, kind in KINDS.items() if kind.advice])
    return import_module(KINDS[fit.KIND].advice).fit_advice(fit, setting, options.ending)


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
    """Return a row per source and rule, and if `show_all` those without an answer."""
    tables = [
        Answer(name, rule.source, rule.batch, rule(advice.setting), not out, out, ())
        for name, rule in advice.sources.items()
        if name not in {answer.name for answer in advice.rules}
        for out in (rule.outside(advice.setting),)
    ]
    shown = [*tables, *advice.rules]
    if not show_all:
        shown = [answer for answer in shown if answer.hyperparameters != Hyperparameters()]
    weights = _weights(advice)
    cells = {
        "rule": lambda answer: answer.name,
        "batch": lambda answer: answer.batch or "–",
        "tokens": lambda answer: size_text(answer.hyperparameters.batch_tokens),
        f"× {advice.setting.seq_len}": lambda answer: size_text(
            answer.hyperparameters.batch_tokens, advice.setting.seq_len
        ),
        "LR": lambda answer: number(answer.hyperparameters.lr),
        "weight": lambda answer: _share(weights.get(answer.name)),
        "in range": lambda answer: {True: "yes", False: "no", None: "–"}[answer.in_range],
        "source": lambda answer: answer.source,
    }
    if show_all:
        cells["reason"] = lambda answer: note_of(answer).partition(": ")[2]
    return Table.of("", shown, cells)


def _weights(advice: Advice) -> dict[str, float]:
    """Return the share of each pooled source; empty for a user's own fit."""
    return advice.pooled.weights if advice.pooled else {}


def _share(weight: float | None) -> str:
    return "–" if weight is None else f"{weight:.0%}"
