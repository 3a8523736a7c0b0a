"""What a law E(S) says of constant batches at a budget, of the model that was fitted."""

from typing import Any

import numpy as np

from bss.advice.told import Told, of_losses
from bss.laws import EsFit
from bss.laws.es.values import predicted_loss
from bss.laws.fitting.estimate import Estimate
from bss.rules import Setting
from bss.units import format_tokens

GRID = 33


def told(entry: dict[str, Any], setting: Setting, ending: str, name: str) -> Told:
    """Of a fit as `bss fit es --json` prints it; the losses are those of its own runs' ending."""
    fit = EsFit.from_dict(entry)
    batch = np.geomspace(fit.measured_batches[0], fit.measured_batches[-1], GRID)
    loss = [predicted_loss(fit, int(setting.tokens), size) for size in batch]
    notes = ["losses are of the rate and the ending of the runs that were fitted"]
    found = of_losses(name, (batch * fit.seq_len).tolist(), loss, fit.level, notes)
    targets = [target.target_loss for target in fit.fits]
    if min(targets) <= min(loss) <= max(targets):
        return found
    reason = (
        f"not tested there: {format_tokens(int(setting.tokens))} tokens end at a loss of "
        f"{min(loss):.4g}, the targets fitted are {min(targets):.4g} to {max(targets):.4g}"
    )
    runs = (
        f"runs of {format_tokens(int(setting.tokens))} tokens at the batches fitted",
        *found.runs,
    )
    return Told(
        name,
        Estimate(None, level=fit.level, note=reason),
        extrapolated=found.best.value,
        runs=runs,
    )
