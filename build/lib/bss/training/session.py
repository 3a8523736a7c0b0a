"""Everything a run needs before its first step: data, mesh, state, compiled programs."""

from typing import Any

from jax.sharding import Mesh

from bss.training.buckets import Programs
from bss.training.evaluation import HeldOut
from bss.training.execution import compiler_options
from bss.training.ledger import Ledger
from bss.training.mesh import on_gpus
from bss.training.source import Source
from bss.training.step import make_step, state_shapes


class Session:
    """One process's share of a run. Only `state` and the ledger's position change."""

    def __init__(self, ledger: Ledger, source: Source, mesh: Mesh):
        """Restores or initialises the state, and starts compiling.

        Raises:
            InputError: too little data, a missing fork point, a bucket the devices cannot share, an
                attention kernel that they cannot run.
        """
        self.ledger, self.source, self.mesh = ledger, source, mesh
        run, execution = ledger.run, ledger.execution
        self._held_out = HeldOut(run, source)
        attention = execution.attention_of(run, mesh)
        ledger.note_execution(mesh, attention)
        shapes = state_shapes(run, mesh)
        self.state = ledger.restore(shapes)
        capacity = execution.ladder(run).capacity(ledger.plan)
        options = compiler_options(execution, mesh)
        step = make_step(run, mesh, attention, whole_gradient=execution.whole_gradient)
        self.programs = Programs(step, shapes, capacity, run, mesh, options)
        bucket = execution.evaluation_bucket
        self._held_out.compile(mesh, bucket, shapes, options, attention)
        if on_gpus(mesh):
            # Its compiler tries kernels on the device, and breaks what is being recorded there.
            self.programs.wait()

    def losses(self) -> dict[str, Any]:
        """Held-out losses of the weights and their averages, and bits per byte for text."""
        return self._held_out.losses(self.state)

    def test_losses(self) -> dict[str, Any]:
        """The same on the test split, where the run asks for it."""
        return self._held_out.test_losses(self.state)
