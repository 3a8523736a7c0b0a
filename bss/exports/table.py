"""Export to CSV with one row per step, for a trainer that reads it or for a custom plot."""

import io

import numpy as np

from bss.exports.base import Export
from bss.schedules.plan import Plan


def _rows(plan: Plan) -> str:
    """Return CSV rows: step, tokens before it, batch (sequences), and what the plan sets."""
    given = plan.coupling.given
    names = ["step", "tokens", "batch", *(["rate"] if plan.rate else []), *given]
    text = io.StringIO()
    text.write(",".join(names) + "\n")
    for segment in plan.segments:
        size = segment.batch * plan.seq_len
        settings = plan.coupling.settings(1.0, segment.batch, plan.seq_len)
        settled = "".join(f",{getattr(settings, name)!r}" for name in given)
        rates = np.zeros(segment.steps)
        if plan.rate:
            middles = segment.start_tokens + size * (np.arange(segment.steps) + 0.5)
            rates = np.broadcast_to(plan.rate(middles), middles.shape) * settings.lr
        for i, rate in enumerate(rates.tolist()):
            step, tokens = segment.start_step + i, segment.start_tokens + i * size
            shown = f",{rate!r}" if plan.rate else ""
            text.write(f"{step},{tokens},{segment.batch}{shown}{settled}\n")
    return text.getvalue()


CSV = Export("CSV", text=_rows)
