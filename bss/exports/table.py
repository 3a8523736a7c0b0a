"""CSV: a row a step, for a trainer that reads what to do, or a plot of one's own."""

import io

import numpy as np

from bss.exports.base import Export
from bss.schedules.plan import Plan


def _rows(plan: Plan) -> str:
    """step, tokens before it, batch in sequences; rate, and what else the plan sets, if it does."""
    given = plan.coupling.given
    names = ["step", "tokens", "batch", *(["rate"] if plan.rate else []), *given]
    text = io.StringIO()
    text.write(",".join(names) + "\n")
    for segment in plan.segments:
        size = segment.batch * plan.seq_len
        settings = plan.coupling.settings(1.0, segment.batch, plan.seq_len)
        besides = "".join(f",{getattr(settings, name)!r}" for name in given)
        rates = np.zeros(segment.steps)
        if plan.rate:
            middles = segment.start_tokens + size * (np.arange(segment.steps) + 0.5)
            rates = np.broadcast_to(plan.rate(middles), middles.shape) * settings.lr
        for i, rate in enumerate(rates.tolist()):
            step, tokens = segment.start_step + i, segment.start_tokens + i * size
            shown = f",{rate!r}" if plan.rate else ""
            text.write(f"{step},{tokens},{segment.batch}{shown}{besides}\n")
    return text.getvalue()


CSV = Export("CSV", text=_rows)
