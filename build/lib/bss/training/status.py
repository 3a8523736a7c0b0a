"""What became of a run, as a value; as JSON it is a run directory's status.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_TOLD = {
    "to do": (),
    "running": ("tokens",),
    "interrupted": ("tokens",),
    "failed": ("tokens", "message"),
    "skipped": ("message",),
    "diverged": ("tokens", "last_checkpoint"),
    "finished": (
        *("tokens", "step", "losses", "seconds", "remainder_tokens"),
        *("programs", "recompilations", "throughput"),
    ),
}


@dataclass(frozen=True)
class Speed:
    """How fast a run was at one batch size.

    Attributes:
        batch: in sequences.
        tokens: trained on with it.
        tokens_per_second: in training steps.
        mfu: the part of the devices' peak FLOP/s that the model's own took; None where the peak is
            not known.
    """

    batch: int
    tokens: int
    tokens_per_second: float
    mfu: float | None


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, and its final numbers where it has finished.

    Attributes:
        status: "to do" where nothing was written yet; "skipped" where its parent did not finish.
        tokens: consumed; of a diverged run, at the end of the step that was not finite.
        step: optimizer steps, those of the parents included.
        losses: the last ones by name: loss, eval_loss, eval_loss_avg_HALFLIFE, test_loss, ...; in
            nats per token, None where there is none.
        seconds: spent in training steps.
        remainder_tokens: trailing tokens that filled no batch.
        programs: how many were compiled.
        recompilations: after a bucket's first use.
        throughput: by batch.
        last_checkpoint: of a diverged run: tokens of the newest one kept, None for none.
        message: why it failed or was skipped.
    """

    status: Literal[
        "to do", "running", "interrupted", "failed", "skipped", "diverged", "finished"
    ] = "to do"
    tokens: int = 0
    step: int = 0
    losses: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    remainder_tokens: int = 0
    programs: int = 0
    recompilations: int = 0
    throughput: tuple[Speed, ...] = ()
    last_checkpoint: int | None = None
    message: str = ""

    @property
    def finished(self) -> bool:
        """Whether the run has come to its stop."""
        return self.status == "finished"

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """What a run of this status tells, its losses beside the other numbers."""
        told: dict[str, Any] = {"status": self.status}
        for name in _TOLD[self.status]:
            told |= plain[name] if name == "losses" else {name: plain[name]}
        return told

    @staticmethod
    def decoded(entry: dict[str, Any]) -> dict[str, Any]:
        """The losses as a group of their own again."""
        losses = {name: value for name, value in entry.items() if "loss" in name}
        return {name: entry[name] for name in entry.keys() - losses} | {"losses": losses}
