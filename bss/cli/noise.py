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


def switches_of(ramp: NoiseRamp) -> dict[str, Any]:
    """Return the switches of a ramp as JSON of its schedule has them."""
    switches = [one.to_dict(ramp.seq_len) for one in ramp.switches]
    return {"seq_len": ramp.seq_len, "batch_tokens": ramp.first, "switches": switches}


def with_switches(ramp: NoiseRamp, shown: Output) -> Output:
    """Return a schedule's output with the switches of its ramp before its plan.

    Raises:
        InputError: If the plan is exported without a sequence length.
    """
    answer = f"{shown.answer}\n{ramp.answer}"
    notes = [*shown.notes]
    if ramp.seq_len is None:
        if "export" in shown.json:
            raise InputError("--export: needs the tokens of a sequence; give --seq-len")
        answer = ramp.answer
        notes.append("batches are in tokens; give --seq-len for sequences and for --export")
    title = f"switches, {ramp.level:.0%} intervals; steps of the measured run"
    table = Table.of_records(title, shown.json["switches"])
    drawn = figure("ramps.noise_figure", ramp)
    return replace(shown, answer=answer, tables=[table, *shown.tables], notes=notes, figure=drawn)
