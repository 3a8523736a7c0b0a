"""bss schedule --from a table: the ramp of a measured gradient noise scale, and its plan."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cyclopts import Group, Parameter

from bss.cells import Table
from bss.cli.options import Count, Number, Repeated
from bss.cli.output import Output, figure
from bss.errors import InputError
from bss.policies.from_noise import NoiseRamp, noise_ramp


@Parameter(name="*", group=Group("Table of noise scales", sort_key=2))
@dataclass(frozen=True)
class NoiseOptions:
    """Options for reading a table of noise scales.

    Attributes:
        columns: names of its columns, OURS=THEIRS: noise_scale=gns,tokens=D
        seq_len: tokens per sequence, where no column has it
        unit: of the noise scale; tokens by default, or what is nearer to the batches of the table
        keep: only these rows, as COLUMN=VALUE, e.g. run=web-1; may be repeated
        level: coverage of the intervals
    """

    columns: str | None = None
    seq_len: Count | None = None
    unit: Literal["tokens", "sequences"] | None = None
    keep: Repeated = ()
    level: Number = 0.90


def is_table(path: Path) -> bool:
    """Return whether a path is a table or a directory of runs, not the JSON of a fit."""
    return path.is_dir() or path.suffix.lower() in (".csv", ".parquet", ".tsv", ".txt")


def ramp_of(path: Path, tokens: str, options: NoiseOptions, limits: dict[str, Any]) -> NoiseRamp:
    """Return the ramp of a table of noise scales, or of a directory of runs."""
    table: Any = path
    how = dict(vars(options))
    if path.is_dir():
        from bss.reading import read_run_table
        from bss.tables import Reading

        reading = Reading.parse(how.pop("columns"), how.pop("seq_len"))
        table, _ = read_run_table([path], reading, need_loss=False)
    return noise_ramp(table, tokens, **how, **limits)


def with_switches(ramp: NoiseRamp, shown: Output, *, exported: bool) -> Output:
    """Return a plan's output with the switches of its ramp before it.

    Raises:
        InputError: If the plan is exported without a sequence length.
    """
    if ramp.seq_len is None and exported:
        raise InputError("--export: needs the tokens of a sequence; give --seq-len")
    switches = [one.to_dict(ramp.seq_len) for one in ramp.switches]
    payload: dict[str, Any] = {
        "kind": "schedule",
        "policy": ramp.policy,
        "batch": str(ramp),
        "law": ramp.law,
    }
    payload |= {"seq_len": ramp.seq_len, "batch_tokens": ramp.first, "switches": switches}
    if shown.text:
        payload["export"] = shown.text
    payload["warnings"] = [*ramp.warnings]
    payload["plan"] = {key: x for key, x in shown.json.items() if key != "export"}
    text = f'--batch "{ramp}"\n{ramp.answer}'
    notes = [shown.answer, *shown.notes]
    if ramp.seq_len is None:
        text = ramp.answer
        notes.append("batches are in tokens; give --seq-len for sequences and for --export")
    title = f"switches, {ramp.level:.0%} intervals; steps of the measured run"
    return replace(
        shown,
        json=payload,
        answer=text,
        tables=[Table.of_records(title, switches), *shown.tables],
        warnings=[*ramp.warnings],
        notes=notes,
        figure=figure("ramps.noise_figure", ramp),
    )
