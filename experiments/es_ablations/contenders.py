"""Who competes under each variation."""

import dataclasses
from collections.abc import Iterator

from bss.errors import InputError
from bss.sweeps.branching import late_switch
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay, seeded
from experiments.es_ablations.study import Study, Variation
from experiments.study import base_run


def contenders(study: Study, variation: Variation) -> Iterator[Contender]:
    """The runs of a variation, for every seed; late switches branch from their constant."""
    setup = study.setup
    if variation.model:
        setup = dataclasses.replace(setup, model=variation.model)
    base, _ = base_run(setup)
    for changes in seeded({"seed": study.seeds, "schedule.batch": variation.batches}):
        run = overlay(base, {**variation.changes, **changes})
        schedule = run.schedule.batch
        role = "constant" if len(schedule.batches) == 1 else "schedule"
        first = str(schedule.batches[0])
        if len(schedule.batches) == 2 and first in variation.batches and not run.depends_on_stop:
            role, trunk = "late", overlay(run, {"schedule.batch": first})
            run = late_switch(trunk, schedule.starts[1], schedule.batches[1])
            run = overlay(run, variation.after)
        elif variation.after and role == "schedule":
            raise InputError(
                f"variations: {variation.name!r} has changes after the switch, and "
                f"'{schedule}' is no branch of a constant of its own; leave it out"
            )
        name = f"constant {first}" if role == "constant" else str(schedule)
        yield Contender(name, role, "constant", run)


def switches(runs: list[Contender]) -> tuple[int, ...]:
    """Where the trunks keep a checkpoint for their branches, in tokens."""
    return tuple(sorted({c.run.parent.tokens for c in runs if c.run.parent}))
