"""bss rules: what published rules say of a setting, side by side, and ramps of published runs."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from bss.cli.output import Output, Table, add_output_arguments, number, option
from bss.errors import InputError
from bss.rules import RULES, SCALINGS, Answer, Change, Hyperparameters, Setting, answers
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
        add(option(name), type=float, help="of the reference of --to")
    add("--ramp", help="print that of a published run at this budget, as llama-3-405b")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Asks every rule.

    Examples:
        bss rules --params 85M --tokens 2.5B --seq-len 1024
        bss rules --params 85M --tokens 2.5B --seq-len 1024 --rule step-law --json
    """
    setting = setting_of(options)
    said = answers(setting, options.rule or RULES)
    tables, notes = [rules_table(said, setting)], [note_of(answer) for answer in said]
    payload: dict[str, Any] = {
        "kind": "rules",
        "setting": {**asdict(setting), "compute": setting.compute},
        "rules": [rule_entry(answer) for answer in said],
    }
    if options.to or options.to_tokens:
        scaled, refused = _scaled(options, setting)
        payload["scalings"] = scaled
        tables.append(_scalings_table(scaled))
        notes += refused
    if options.ramp:
        from bss.rules.ramps import RAMPS  # the only ones that need NumPy
        from bss.schedules.plan import resolve

        schedule = RAMPS[options.ramp].schedule(setting.seq_len, int(setting.tokens))
        try:
            unseen = resolve(schedule, int(setting.tokens), setting.seq_len).unseen()
        except InputError as error:
            unseen = [str(error)]
        payload["ramp"] = {"name": options.ramp, "batch": str(schedule), "unseen": unseen}
        notes.append(f'{options.ramp} at this budget: --batch "{schedule}"')
        notes += [f"warning: {line}" for line in unseen]
    return Output(payload, tables, [note for note in notes if note])


def setting_of(options: argparse.Namespace, **known: float) -> Setting:
    """The setting by the options that are called as its fields, but for what is known."""
    given: dict[str, Any] = {f.name: getattr(options, f.name, None) for f in fields(Setting)}
    for name, value in (given | known).items():
        given[name] = parse_tokens(value, field=option(name)) if isinstance(value, str) else value
    return Setting(**given)


def rule_entry(answer: Answer) -> dict[str, Any]:
    """An answer with its hyperparameters beside the rest, as JSON has it."""
    entry = asdict(answer)
    head = {name: entry.pop(name) for name in ("name", "source")}
    return {**head, **entry.pop("hyperparameters"), **entry}


def rules_table(said: Sequence[Answer], setting: Setting) -> Table:
    """What each rule says, with its range and source."""
    title = (
        f"rules at {setting.params:,.0f} parameters, {format_tokens(int(setting.tokens))} tokens, "
        f"{setting.compute:.3g} FLOPs"
    )
    cells = {
        "rule": lambda answer: answer.name,
        "batch": lambda answer: answer.batch or "–",
        "tokens": lambda answer: size_text(answer.hyperparameters.batch_tokens),
        f"× {setting.seq_len}": lambda a: size_text(
            a.hyperparameters.batch_tokens, setting.seq_len
        ),
        "lr": lambda answer: number(answer.hyperparameters.lr),
        "beta1": lambda answer: number(answer.hyperparameters.beta1),
        "beta2": lambda answer: number(answer.hyperparameters.beta2),
        "weight decay": lambda answer: number(answer.hyperparameters.weight_decay),
        "in range": lambda answer: {True: "yes", False: "no", None: "–"}[answer.in_range],
        "source": lambda answer: answer.source,
    }
    return Table.of(title, said, cells)


def size_text(batch_tokens: float | None, seq_len: int = 1) -> str:
    """A batch in sequences of so many tokens."""
    return number(batch_tokens and batch_tokens / seq_len)


def note_of(answer: Answer) -> str:
    """What a rule lacks, or where it is asked beyond its range; empty for neither."""
    if answer.missing:
        return f"{answer.name}: needs {', '.join(map(option, answer.missing))}"
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
            scaled_to = scaling(reference, change)
        except InputError as error:
            refused.append(f"{name}: {error}")
        else:
            scaled.append({"name": name, "source": scaling.source, **asdict(scaled_to)})
    return scaled, refused


def _scalings_table(scaled: list[dict[str, Any]]) -> Table:
    columns = ["batch_tokens", "lr", *_REFERENCE]
    rows = [
        (entry["name"], *(number(entry[column]) for column in columns), entry["source"])
        for entry in scaled
    ]
    heads = ["scaling", "tokens", *(column.replace("_", " ") for column in columns[1:]), "source"]
    return Table("at the new batch", heads, rows)
