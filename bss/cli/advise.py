"""bss advise: the best batch of a run before anything is trained, and what others cost."""

import argparse
import pkgutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bss.advice import ENDINGS, Advice, Growth, Told, advise, growth
from bss.cli.output import Output, Table, add_output_arguments, number
from bss.cli.rules import note_of, rules_table
from bss.cli.saved import read_fit
from bss.errors import InputError, check
from bss.rules import RULES, Setting
from bss.rules.setting import non_embedding, sequences_of
from bss.units import format_tokens, parse_tokens

FITS = {
    "es": "bss.advice.of_es:told",
    "table": "bss.advice.of_table:told",
    "curve": "bss.advice.of_curve:told",
    "critical": "bss.advice.of_critical:told",
}
"""Per kind of fit, what reads the best batch from it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss advise`."""
    add = parser.add_argument
    add("--params", help="non-embedding parameters, as 85M; or give --total-params")
    add("--total-params", help="with embeddings; needs --vocab and --d-model")
    add("--vocab", type=int, help="tokens of the vocabulary, for --total-params")
    add("--tied", action="store_true", help="the embeddings of --total-params are one")
    add("--d-model", type=int, help="width, for --total-params and for rules that need it")
    add("--tokens", required=True, help="budget, as 2.5B")
    add("--seq-len", type=int, required=True, help="tokens per sequence")
    add("--lr", type=float, help="peak rate, for rules and curve fits that need it")
    add("--beta2", type=float, help="Adam's per step, if it is the same at every batch")
    add("--ending", choices=[*ENDINGS], default="wsd", help="how the rate ends; wsd by default")
    add("--loss", type=float, help="expected at the end, in nats per token, for rules that need it")
    add("--noise-scale", help="gradient noise scale in tokens, for rules that need it")
    add("--from", dest="fit", type=Path, help="a fit of your own, as `bss fit --json` prints it")
    add("--rule", action="append", help="one of them, or package.module:ATTRIBUTE; repeatable")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Asks the rules, the fit, and what was measured of growing."""
    check(
        options.beta2 is None or 0 < options.beta2 < 1,
        "--beta2",
        options.beta2,
        "a number between 0 and 1",
    )
    setting = _setting(options)
    told = _told(options, setting)
    found = advise(setting, told, options.rule or RULES)
    grow = growth(options.ending, options.beta2)
    lacking = [note_of(at) for at in found.rules if at.missing]
    notes = [*found.notes, *lacking]
    payload = _payload(found, grow, notes)
    tables = [rules_table(found.rules, setting), _batches(found), _costs(found)]
    gain = f"grow the batch: {grow.verdict} (gain {grow.gain:+.4f} nats): {grow.why}"
    narrow = [f"would narrow it: {text}" for text in found.narrow]
    return Output(payload, tables, [gain, *narrow, *notes])


def _setting(options: argparse.Namespace) -> Setting:
    if (options.params is None) == (options.total_params is None):
        raise InputError("--params: give it, non-embedding, or --total-params, one of them")
    if options.params is not None:
        if options.vocab is not None or options.tied:
            given = "--vocab" if options.vocab is not None else "--tied"
            raise InputError(f"{given}: goes with --total-params; leave it out with --params")
        params = parse_tokens(options.params, field="--params")
    else:
        total = parse_tokens(options.total_params, field="--total-params")
        for name in ("vocab", "d_model"):
            if getattr(options, name) is None:
                option = name.replace("_", "-")
                raise InputError(f"--{option}: missing; --total-params needs it")
        params = non_embedding(total, options.vocab, options.d_model, tied=options.tied)
    noise = options.noise_scale
    return Setting(
        params=params,
        tokens=parse_tokens(options.tokens, field="--tokens"),
        seq_len=options.seq_len,
        d_model=options.d_model,
        loss=options.loss,
        noise_scale=None if noise is None else parse_tokens(noise, field="--noise-scale"),
        lr=options.lr,
    )


def _told(options: argparse.Namespace, setting: Setting) -> Told:
    """What the user's fit says, or that of the published table."""
    if options.fit is None:
        from bss.advice.published import published

        return published(setting)
    entry = read_fit(options.fit, "advise", FITS)
    read = pkgutil.resolve_name(FITS[entry["kind"]])
    return read(entry, setting, options.ending, str(options.fit))


def _payload(found: Advice, grow: Growth, notes: list[str]) -> dict[str, Any]:
    rules = [
        {
            "name": at.name,
            "source": at.source,
            "batch": at.batch,
            "batch_tokens": at.told.batch_tokens,
            "lr": at.told.lr,
            "in_range": at.in_range,
        }
        for at in found.rules
    ]
    ends = ("value", "low", "high")
    critical = found.told.critical
    return {
        "kind": "advice",
        "setting": {**asdict(found.setting), "compute": found.setting.compute},
        "rules": rules,
        "spread": found.spread and dict(zip(("low", "high"), found.spread, strict=True)),
        "batch_tokens": {end: getattr(found.batch, end) for end in ends},
        "by": found.by,
        "from": found.told.name,
        "critical_tokens": critical and {end: getattr(critical, end) for end in ends},
        "cost_of": [asdict(cost) for cost in found.cost_of],
        "grow": asdict(grow),
        "narrow": found.narrow,
        "notes": notes,
    }


def _batches(found: Advice) -> Table:
    by = {"fit": found.told.name, "rules": "the middle of the rules, and what is as good as any"}[
        found.by
    ]
    kinds = [("best", found.batch, by)]
    if found.told.critical:
        kinds.append(("critical", found.told.critical, found.told.name))
    unit = found.setting.seq_len
    rows = [
        (kind, *(_size(end, 1) for end in ends), _size(at.value, unit), name)
        for kind, at, name in kinds
        for ends in [(at.value, at.low, at.high)]
    ]
    columns = ("batch", "tokens", "from", "to", f"× {unit}", "by")
    return Table("the batch", columns, rows)


def _size(batch: float | None, unit: int) -> str:
    return number(batch and sequences_of(batch, unit))


def _costs(found: Advice) -> Table:
    rows = [
        (
            f"{cost.factor:g} ×",
            number(cost.batch_tokens),
            "not known" if cost.loss is None else f"{cost.loss:.4f}",
            f"{cost.steps:,}",
        )
        for cost in found.cost_of
    ]
    title = f"what it costs in {format_tokens(int(found.setting.tokens))} tokens"
    return Table(title, ("of the batch", "tokens", "nats above the best", "steps"), rows)
