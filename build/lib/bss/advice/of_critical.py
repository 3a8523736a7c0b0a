"""What a critical fit says: where larger batches stop to save steps, and no best batch."""

from typing import Any

from bss.advice.told import Told
from bss.laws import CriticalFit
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.power import predict
from bss.rules import Setting

NONE = "a critical fit tells no best batch"


def told(entry: dict[str, Any], setting: Setting, ending: str, name: str) -> Told:
    """Of a fit as `bss fit critical --json` prints it, by the law that its design identifies."""
    fit = CriticalFit.from_dict(entry)
    best = Estimate(None, level=fit.level, note=NONE)
    if fit.law is None:
        return Told(name, best, notes=(f"no law of the critical batch: {fit.joint_refused}",))
    found = predict(fit.law, {"params": setting.params, "tokens": setting.tokens})
    unit = 1 if fit.unit == "tokens" else setting.seq_len
    ends = (end and end * unit for end in (found.value, found.low, found.high))
    notes = [
        f"critical at {fit.overhead:.0%} more than linear scaling from {fit.reference:g} {fit.unit}"
    ]
    for size in fit.law.variables:
        seen = [getattr(at.curve, size) for at in fit.fits if at.cbs.value is not None]
        if not min(seen) <= getattr(setting, size) <= max(seen):
            notes.append(f"{size} is outside those fitted, {min(seen):.3g} to {max(seen):.3g}")
    return Told(name, best, critical=Estimate(*ends, level=found.level), notes=tuple(notes))
