"""Everything runs need before their next step: data, state, compiled programs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bss.models.family import ONE_BY_ONE
from bss.training.config import DataConfig
from bss.training.devices.mesh import on_gpus
from bss.training.evaluation import Evaluation
from bss.training.execution import compiler_options
from bss.training.held_out import HeldOut
from bss.training.record.checkpoint import abstract
from bss.training.record.ledger import Ledger
from bss.training.record.seals import text_hash
from bss.training.running.buckets import Programs
from bss.training.running.fleet import Dispatches, compile_steps, stack
from bss.training.running.prefetch import Dispatch, step_inputs
from bss.training.running.stretches import STEPS, Stretches, steps_at_once
from bss.training.source import Source
from bss.training.step import State, make_step


class Session:
    """One process's share of runs that stand at the same tokens. Only `state` changes.

    Attributes:
        ledgers: the runs' books.
        state: of a run; of a fleet, on a leading axis.
        inputs: of these.
        programs: those that take them, by their names in the inputs.
        held_out: the evaluation.
    """

    inputs: Iterable[Dispatch]
    programs: Programs | dict[int, Any]

    def __init__(
        self,
        restored: Sequence[tuple[Ledger, State]],
        sources: Mapping[DataConfig, Source],
        mesh: Mesh,
        *,
        fleet: bool,
    ):
        """Starts compiling; a `fleet` is done by one program, one that is none is a run.

        Raises:
            InputError: too little data, a bucket the devices cannot share, an attention kernel that
                they cannot run.
        """
        self.ledgers, self.mesh = [ledger for ledger, _ in restored], mesh
        run, execution, plan = (lead := self.ledgers[0]).run, lead.execution, lead.plan
        source, options = sources[run.data], compiler_options(execution, mesh)
        self.held_out = HeldOut(run, source, Path(execution.data))
        attention = execution.attention_of(run, mesh)
        layers = ONE_BY_ONE if fleet else execution.layers_of(run, mesh)
        ids = sorted(ledger.run.id for ledger in self.ledgers)
        mates = text_hash(" ".join(ids)) if len(ids) > 1 else ""
        for ledger in self.ledgers:
            ledger.note_execution(mesh, attention, len(ids), mates, layers)
        events = frozenset(lead.rows | lead.forks | {plan.tokens})
        most = min(execution.steps or STEPS, STEPS) if fleet else steps_at_once(execution, mesh)
        flops = len(ids) * run.model.training_flops_per_token(plan.seq_len)
        flops = 0.0 if execution.steps else flops
        stretches = Stretches(plan, lead.first_step, events, most, flops)
        if fleet:
            self.state, shapes, self._pick = stack([state for _, state in restored], mesh)
            self.inputs = Dispatches(self.ledgers, sources, stretches)
            self.programs = compile_steps(self.inputs, shapes, mesh, options, attention)
        else:
            ((_, self.state),) = restored
            shapes, self._pick = abstract(self.state), lambda state, _: state
            ladder = execution.ladder(run)
            self.inputs = step_inputs(plan, stretches, source, ladder, run.averages)
            whole = execution.whole_gradient
            step = make_step(run, mesh, attention, whole_gradient=whole, layers=layers)
            of_run = shapes, ladder.capacity(plan), run, mesh
            self.programs = Programs(step, *of_run, options, most)
        bucket = execution.evaluation_bucket
        self.held_out.compile(Evaluation(run, mesh, shapes, bucket, options, attention, fleet))
        if on_gpus(mesh) and isinstance(self.programs, Programs):
            # Its compiler tries kernels on the device, and breaks what is being recorded there.
            self.programs.wait()

    def member(self, m: int) -> State:
        """The state of the run at a place."""
        return self._pick(self.state, m)
