"""Export to CSV with one row per step, for a trainer that reads it or for a custom plot."""

import numpy as np

from bss.exports.base import Export
from bss.schedules.plan import Plan


def _rows(plan: Plan) -> str:
    """Return CSV rows: step, tokens before it, batch (sequences), and what the plan sets."""
    import pandas as pd  # which other exports do not need

    parts = []
    for segment in plan.segments:
        steps, size = np.arange(segment.steps), segment.batch * plan.seq_len
        settings = plan.coupling.settings(1.0, segment.batch, plan.seq_len)
        tokens = segment.start_tokens + size * steps
        part = {"step": segment.start_step + steps, "tokens": tokens, "batch": segment.batch}
        if plan.rate:
            part["rate"] = plan.rate(tokens + size / 2) * settings.lr
        part |= {name: getattr(settings, name) for name in plan.coupling.given}
        parts.append(pd.DataFrame(part))
    return pd.concat(parts).to_csv(index=False)


CSV = Export("CSV", text=_rows)
