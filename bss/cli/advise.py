"""bss advise: the best batch of a run before anything is trained, and what others cost."""

import argparse
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from bss.advice import Advice, FitAdvice, advise
from bss.advice.advice import NOBODY
from bss.cli.kinds import KINDS, read_fit
from bss.cli.output import Output, Table, add_output_arguments, number, option
from bss.cli.rules import note_of, rule_entry, rules_table, setting_of, size_text
from bss.errors import InputError, check
from bss.rules import RULES, Setting, non_embedding
from bss.units import format_tokens, parse_tokens

ENDINGS = ("wsd", "cosine", "average", "constant")
OF_RULES = ("name", "source", "batch", "batch_tokens", "lr", "in_range")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss advise`."""
    add = parser.add_argument
    add("--params", help="non-embedding parameters, as 85M; or give --total-params")
    add("--total-params", help="with embeddings; needs --vocab and --d-model")
    add("--vocab", type=int, help="tokens of the vocabulary, for --total-params")
    text = "of a mixture of experts: those that a token passes, of --params or of --total-params"
    add("--active-params", help=text)
    add("--tied", action="store_true", help="the embeddings of --total-params are one")
    add("--d-model", type=int, help="width, for --total-params and for rules that need it")
    add("--tokens", required=True, help="budget, as 2.5B")
    add("--seq-len", type=int, required=True, help="tokens per sequence")
    add("--lr", type=float, help="peak rate, for rules and curve fits that need it")
    add("--ending", choices=ENDINGS, default="wsd", help="how the rate ends; wsd by default")
    add("--loss", type=float, help="expected at the end, in nats per token, for rules that need it")
    add("--noise-scale", help="gradient noise scale in tokens, for rules that need it")
    add("--from", dest="fit", type=Path, help="a fit of your own, as `bss fit --json` prints it")
    add("--rule", action="append", help="one of them, or package.module:ATTRIBUTE; repeatable")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Asks the rules and the fit.

    Examples:
        bss advise --params 85M --tokens 2.5B --seq-len 1024
        bss advise --params 85M --tokens 2.5B --seq-len 1024 --ending cosine
    """
    total = _params(options)
    active = _active(options, total)
    advice = _advice(options, active or total)
    lacking = [at for at in advice.rules if at.missing and hasattr(options, at.missing[0])]
    notes = [*advice.notes, *map(note_of, lacking)]
    payload = _payload(advice, notes)
    if active is not None:
        whole = _advice(options, total)
        lines = {"active": advice.first_line, "total": whole.first_line}
        payload["experts"] = {"active_params": active, "total_params": total, **lines}
        notes[:0] = [
            "a mixture of experts, which no source has: the answer is by the parameters that a "
            "token passes",
            f"by all {total:,.0f} parameters: {whole.first_line}",
        ]
    tables = [rules_table(advice.rules, advice.setting), _batches(advice)]
    tables += [_costs(advice)] if advice.cost_of else []
    said = [advice.said] if advice.by == "rules" and advice.said else []
    narrow = [f"would narrow it: {text}" for text in advice.narrow]
    return Output(payload, tables, [*said, *narrow, *notes], first=advice.first_line)


def _advice(options: argparse.Namespace, params: float) -> Advice:
    """The advice at so many parameters."""
    setting = setting_of(options, params=params)
    return advise(setting, _fit_advice(options, setting), options.rule or RULES)


def _active(options: argparse.Namespace, total: float) -> float | None:
    """The parameters that a token passes; None of a dense model."""
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


def _fit_advice(options: argparse.Namespace, setting: Setting) -> FitAdvice:
    """What the user's fit says, or that of the published table."""
    if options.fit is None:
        from bss.advice.of_table import published

        return published(setting)
    fit = read_fit(options.fit, "advise")
    room = import_module(KINDS[fit.KIND].advice)
    return room.fit_advice(fit, setting, options.ending, str(options.fit))


def _payload(advice: Advice, notes: list[str]) -> dict[str, Any]:
    entries = [rule_entry(answer) for answer in advice.rules]
    ends = ("value", "low", "high")
    critical = advice.fit.critical
    return {
        "kind": "advice",
        "advice": advice.first_line,
        "setting": {**asdict(advice.setting), "compute": advice.setting.compute},
        "rules": [{name: entry[name] for name in OF_RULES} for entry in entries],
        "spread": advice.spread and dict(zip(("low", "high"), advice.spread, strict=True)),
        "batch_tokens": {end: getattr(advice.batch, end) for end in ends},
        "by": advice.by,
        "from": advice.fit.name,
        "critical_tokens": critical and {end: getattr(critical, end) for end in ends},
        "cost_of": [asdict(cost) for cost in advice.cost_of],
        "narrow": advice.narrow,
        "notes": notes,
    }


def _batches(advice: Advice) -> Table:
    by = {"fit": advice.fit.name, "rules": "the middle of the rules, and what is as good as any"}
    by["nobody"] = NOBODY
    kinds = [("best", advice.batch, by[advice.by])]
    if advice.fit.critical:
        kinds.append(("critical", advice.fit.critical, advice.fit.name))
    unit = advice.setting.seq_len
    cells = {
        "batch": lambda kind: kind[0],
        "tokens": lambda kind: size_text(kind[1].value),
        "from": lambda kind: size_text(kind[1].low),
        "to": lambda kind: size_text(kind[1].high),
        f"× {unit}": lambda kind: size_text(kind[1].value, unit),
        "by": lambda kind: kind[2],
    }
    return Table.of("the batch", kinds, cells)


def _costs(advice: Advice) -> Table:
    title = f"what it costs in {format_tokens(int(advice.setting.tokens))} tokens"
    cells = {
        "of the batch": lambda cost: f"{cost.factor:g} ×",
        "tokens": lambda cost: number(cost.batch_tokens),
        "nats above the best": lambda c: "not known" if c.loss is None else f"{c.loss:.4f}",
        "steps": lambda cost: f"{cost.steps:,}",
    }
    return Table.of(title, advice.cost_of, cells)
