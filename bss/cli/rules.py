"""bss rules: published rules for batch size and learning rate, and ramps of published runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cyclopts import Group, Parameter

from bss.cells import Table
from bss.cli.options import Count, Number, Repeated, RunOptions
from bss.cli.output import Output, Show
from bss.errors import InputError
from bss.rules import RULES, Answer, Change, Hyperparameters, Setting, answers, scaled
from bss.units import format_tokens

_REFERENCE = ("beta1", "beta2", "weight_decay")
SHOWN = ("name", "batch", "batch_tokens", "sequences", "lr", "beta1", "beta2", "weight_decay",
         "weight", "in_range", "source", "reason")  # fmt: skip


@Parameter(name="*", group=Group("Scaling to another batch size", sort_key=2))
@dataclass(frozen=True)
class ScaleOptions:
    """Scaling rules, applied to a reference run.

    Attributes:
        to: new batch size in tokens
        to_tokens: new token budget
        beta1: of the reference
        beta2: of the reference
        weight_decay: of the reference
    """

    to: Count | None = None
    to_tokens: Count | None = None
    beta1: Number | None = None
    beta2: Number | None = None
    weight_decay: Number | None = None


def rules(
    *,
    run: RunOptions,
    batch_tokens: Count | None = None,
    rule: Repeated = (),
    ramp: str | None = None,
    scale: ScaleOptions = ScaleOptions(),
    show: Show = Show(),
) -> Output:
    """Evaluate every published rule.

    Args:
        batch_tokens: tokens per step, for rules that go with a batch; the reference of --to
        rule: a rule, or package.module:ATTRIBUTE; may be repeated
        ramp: print the batch ramp of a published run at this budget, e.g. llama-3-405b

    Examples:
        bss rules --params 85M --tokens 2.5B --seq-len 1024
        bss rules --params 85M --tokens 2.5B --seq-len 1024 --rule step-law --json
    """
    setting = run.setting(batch_tokens=batch_tokens)
    found = answers(setting, rule or RULES)
    entries = [answer.to_dict() for answer in found]
    title = (
        f"rules at {run.params:,} parameters, {format_tokens(run.tokens)} tokens, "
        f"{setting.compute:.3g} FLOPs"
    )
    tables = [rules_table(title, entries, run.seq_len)]
    notes = [note_of(one) for one in found]
    payload: dict[str, Any] = {
        "kind": "rules",
        "setting": {**asdict(setting), "compute": setting.compute},
        "rules": entries,
    }
    warnings: list[str] = []
    if scale.to or scale.to_tokens:
        payload["scalings"], refused = _scaled(scale, setting)
        tables.append(Table.of_records("at the new batch", payload["scalings"]))
        notes += refused
    if ramp:
        schedule, warnings = _ramp(ramp, run)
        payload["ramp"] = {"name": ramp, "batch": schedule, "unseen": warnings}
        notes.append(f'{ramp} at this budget: --batch "{schedule}"')
    return Output(payload, "", tables, warnings, [note for note in notes if note])


def _ramp(name: str, run: RunOptions) -> tuple[str, list[str]]:
    """Return the ramp of a published run at a budget, and its stages that hold no step."""
    from bss.rules.ramps import RAMPS  # needs NumPy
    from bss.schedules.plan import resolve

    schedule = RAMPS.load(name).schedule(run.seq_len, run.tokens)
    try:
        return str(schedule), list(resolve(schedule, run.tokens, run.seq_len).unseen())
    except InputError as error:
        return str(schedule), [str(error)]


def rules_table(title: str, entries: Sequence[dict[str, Any]], seq_len: int) -> Table:
    """Return a row per answer of a rule, with what else its entry has."""
    rows = [{**one, "sequences": (one["batch_tokens"] or 0) / seq_len or None} for one in entries]
    return Table.of_records(title, rows, SHOWN, headers={"batch": "kind of batch"})


def note_of(answer: Answer) -> str:
    """Return what a rule needs or in what it is out of range; "" for neither."""
    if answer.missing:
        options = (f"--{name.replace('_', '-')}" for name in answer.missing)
        return f"{answer.name}: needs {', '.join(options)}"
    return f"{answer.name}: {'; '.join(answer.outside)}" if answer.outside else ""


def _scaled(scale: ScaleOptions, setting: Setting) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the hyperparameters by each scaling rule, and a line for each that needs more."""
    if setting.batch_tokens is None:
        raise InputError("--to: scales from a reference; give its batch, --batch-tokens")
    others = {name: getattr(scale, name) for name in _REFERENCE}
    reference = Hyperparameters(setting.batch_tokens, setting.lr, **others)
    budget = scale.to_tokens or setting.tokens
    change = Change(scale.to or setting.batch_tokens, budget / setting.tokens, setting.noise_scale)
    return scaled(reference, change)
