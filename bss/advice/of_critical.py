"""What a critical fit says: where larger batches stop to save steps, and no best batch."""

from bss.advice.fit_advice import FitAdvice
from bss.laws import CriticalFit
from bss.laws.base import Estimate
from bss.laws.critical.shape import CbsDefinition
from bss.laws.power import predict
from bss.rules import Setting

NONE = "a critical fit tells no best batch"


def fit_advice(fit: CriticalFit, setting: Setting, ending: str, name: str) -> FitAdvice:
    """By the law that the design of the fit identifies."""
    best = Estimate(None, level=fit.level, note=NONE)
    if fit.law is None:
        return FitAdvice(name, best, notes=(f"no law of the critical batch: {fit.joint_refused}",))
    critical = predict(fit.law, {"params": setting.params, "tokens": setting.tokens})
    unit = 1 if fit.unit == "tokens" else setting.seq_len
    ends = (end and end * unit for end in (critical.value, critical.low, critical.high))
    note = "critical is b/a, where twice the least tokens and the fewest steps are taken"
    if fit.quantity == "cbs":
        note = f"critical is {CbsDefinition(fit.overhead, fit.reference)} {fit.unit}"
    notes = [note]
    used = [at.curve for at, one in zip(fit.fits, fit.critical, strict=True) if one.value]
    for size in fit.law.variables:
        seen = [getattr(curve, size) for curve in used]
        if not min(seen) <= getattr(setting, size) <= max(seen):
            notes.append(f"{size} is outside those fitted, {min(seen):.3g} to {max(seen):.3g}")
    return FitAdvice(name, best, critical=Estimate(*ends, level=critical.level), notes=tuple(notes))
