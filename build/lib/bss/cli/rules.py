"""bss rules: what published rules say of a setting, side by side, and ramps of published runs."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.errors import InputError
from bss.rules import RULES, SCALINGS, Answer, Change, Hyperparameters, Setting, answers
from bss.rules.setting import sequences_of
from bss.units import format_tokens, parse_tokens

_REFERENCE = ("beta1", "beta2", "epsilon", "weight_decay")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss rules`."""
    add = parser.add_argument
    add("--params", required=True, help="non-embedding parameters, as 85M")
    add("--tokens", required=True, help="budget, as 2.5B")
    add("--seq-len", type=int, required=True, help="tokens per sequence")
    add("--flops", type=float, help="of the whole training; without it 6·params·tokens")
    add("--d-model", type=int, help="width, for rules that need it")
    add("--loss", type=float, help="expected at the end, in nats per token")
    add("--noise-scale", help="gradient noise scale, in tokens")
    add("--batch-tokens", help="tokens per step, for what goes with a batch; the reference of --to")
    add("--lr", type=float, help="peak rate, for what goes with it; the reference of --to")
    add("--rule", action="append", help="one of them, or package.module:ATTRIBUTE; repeatable")
    add("--to", metavar="TOKENS", help="a new batch: what scaling rules make of the reference")
    add("--to-tokens", metavar="TOKENS", help="a new budget, from that of --tokens")
    for name in _REFERENCE:
        add(f"--{name.replace('_', '-')}", type=float, help="of the reference of --to")
    add("--ramp", help="print that of a published run at this budget, as llama-3-405b")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Asks every rule."""
    setting = _setting(options)
    told = answers(setting, options.rule or RULES)
    tables, notes = [rules_table(told, setting)], [note_of(a) for a in told]
    payload: dict[str, Any] = {
        "kind": "rules",
        "setting": {**asdict(setting), "compute": setting.compute},
        "rules": [_entry(answer) for answer in told],
    }
    if options.to or options.to_tokens:
        scaled, refused = _scaled(options, setting)
        payload["scalings"] = scaled
        tables.append(_scalings_table(scaled))
        notes += refused
    if options.ramp:
        from bss.rules.ramps import RAMPS  # the only one that needs NumPy

        schedule = RAMPS[options.ramp].schedule(setting.seq_len, int(setting.tokens))
        payload["ramp"] = {"name": options.ramp, "batch": str(schedule)}
        notes.append(f'{options.ramp} at this budget: --batch "{schedule}"')
    return Output(payload, tables, [note for note in notes if note])


def _setting(options: argparse.Namespace) -> Setting:
    counts = {
        name: None if text is None else parse_tokens(text, field=f"--{name.replace('_', '-')}")
        for name in ("params", "tokens", "noise_scale", "batch_tokens")
        for text in [getattr(options, name)]
    }
    others = {
        name: getattr(options, name) for name in ("seq_len", "flops", "d_model", "loss", "lr")
    }
    return Setting(**counts, **others)


def _entry(answer: Answer) -> dict[str, Any]:
    """An answer with its hyperparameters beside the rest, as JSON has it."""
    entry = asdict(answer)
    return {"name": entry.pop("name"), "source": entry.pop("source"), **entry.pop("told"), **entry}


def rules_table(told: Sequence[Answer], setting: Setting) -> Table:
    """What each rule says, with its range and source."""
    title = (
        f"rules at {setting.params:,.0f} parameters, {format_tokens(int(setting.tokens))} tokens, "
        f"{setting.compute:.3g} FLOPs"
    )
    columns = ["rule", "batch", "tokens", f"× {setting.seq_len}", "lr", "beta2", "weight decay"]
    rows = []
    for answer in told:
        said = answer.told
        batch = said.batch_tokens
        sequences = None if batch is None else sequences_of(batch, setting.seq_len)
        numbers = (batch, sequences, said.lr, said.beta2, said.weight_decay)
        within = {True: "yes", False: "no", None: "–"}[answer.in_range]
        told_of = (*(number(value) for value in numbers), within, answer.source)
        rows.append((answer.name, answer.batch or "–", *told_of))
    return Table(title, [*columns, "in range", "source"], rows)


def note_of(answer: Answer) -> str:
    """What a rule lacks, or where it is asked beyond its range; empty for neither."""
    if answer.missing:
        needed = ", ".join(f"--{name.replace('_', '-')}" for name in answer.missing)
        return f"{answer.name}: needs {needed}"
    return f"{answer.name}: {'; '.join(answer.outside)}" if answer.outside else ""


def _scaled(
    options: argparse.Namespace, setting: Setting
) -> tuple[list[dict[str, Any]], list[str]]:
    """What each scaling rule makes of the reference, and a line for each that cannot."""
    if setting.batch_tokens is None:
        raise InputError("--to: scales from a reference; give its batch, --batch-tokens")
    others = {name: getattr(options, name) for name in _REFERENCE}
    reference = Hyperparameters(setting.batch_tokens, setting.lr, **others)
    batch, budget = (
        old if new is None else parse_tokens(new, field=field)
        for field, old, new in (
            ("--to", setting.batch_tokens, options.to),
            ("--to-tokens", setting.tokens, options.to_tokens),
        )
    )
    change = Change(batch, budget / setting.tokens, setting.noise_scale)
    scaled, refused = [], []
    for name, scaling in SCALINGS.items():
        try:
            told = scaling(reference, change)
        except InputError as error:
            refused.append(f"{name}: {error}")
        else:
            scaled.append({"name": name, "source": scaling.source, **asdict(told)})
    return scaled, refused


def _scalings_table(scaled: list[dict[str, Any]]) -> Table:
    columns = ["batch_tokens", "lr", *_REFERENCE]
    rows = [
        (entry["name"], *(number(entry[column]) for column in columns), entry["source"])
        for entry in scaled
    ]
    heads = ["scaling", "tokens", *(column.replace("_", " ") for column in columns[1:]), "source"]
    return Table("at the new batch", heads, rows)
