"""What became of a run, as a value; as JSON it is a run directory's status.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = 2
_KNOWN = {
    "to do": (),
    "running": ("tokens",),
    "interrupted": ("tokens",),
    "failed": ("tokens", "message"),
    "damaged": ("tokens", "message"),
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
        status: "to do" where nothing was written yet; "skipped" where its parent did not finish;
            "damaged" where it had ended, and its files are no longer what was written.
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
        message: why it failed or was skipped, or what is damaged.
    """

    status: Literal[
        "to do", "running", "interrupted", "failed", "skipped", "damaged", "diverged", "finished"
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
        """What is known of a run of this status."""
        known = {name: plain[name] for name in _KNOWN[self.status]}
        return {"schema": SCHEMA, "status": self.status, **known}

    @staticmethod
    def decoded(entry: dict[str, Any]) -> dict[str, Any]:
        """Its fields."""
        return {name: value for name, value in entry.items() if name != "schema"}


def throughput(
    rows: list[dict[str, Any]], peak_tokens_per_second: float | None, start: int = 0
) -> tuple[Speed, ...]:
    """Tokens per second and model FLOP utilisation by batch size, from a curve.

    Its rows have cumulative `seconds`; the peak is that of the devices at their peak FLOP/s, None
    where that is not known;
    `start` tokens were consumed before the first row's steps.
    """
    spans: dict[int, list[float]] = {}
    tokens, seconds = start, 0.0
    for row in rows:
        span = spans.setdefault(row["batch"], [0, 0.0])
        span[0] += row["tokens"] - tokens
        span[1] += row["seconds"] - seconds
        tokens, seconds = row["tokens"], row["seconds"]
    return tuple(
        Speed(
            batch,
            int(spent),
            spent / took,
            peak_tokens_per_second and spent / took / peak_tokens_per_second,
        )
        for batch, (spent, took) in spans.items()
        if took > 0
    )
