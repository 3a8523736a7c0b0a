"""Every figure: functions from a table or a fit to a matplotlib Figure, without global state.

Lines differ in marker, line style and a colour of monotone lightness, so that a figure is readable
in grey. A fit that did not converge is named and not drawn.
"""

from bss.plots.contenders import contenders_figure
from bss.plots.curves import loss_curves
from bss.plots.laws import batch_against_loss, es_panels, tokens_to_target
from bss.plots.schedules import schedule_figure

__all__ = [
    "batch_against_loss",
    "contenders_figure",
    "es_panels",
    "loss_curves",
    "schedule_figure",
    "tokens_to_target",
]
