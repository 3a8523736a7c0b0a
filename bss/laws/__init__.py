"""From loss curves to laws: what is fitted, what a fit is, and what it predicts.

Callers import from here; the rooms behind it are es (tokens and steps to a loss), critical
(critical batch sizes), final_loss (final losses of finished runs) and functional (whole curves
under any schedule).
"""

from bss.laws.critical.fit import fit_critical
from bss.laws.critical.values import CriticalFit
from bss.laws.es.fit import fit_es
from bss.laws.es.values import EsFit
from bss.laws.final_loss.fit import fit_table
from bss.laws.final_loss.points import check_losses
from bss.laws.final_loss.values import TableFit
from bss.laws.functional.fit import fit_curve
from bss.laws.functional.values import CurveFit, predict_runs

__all__ = [
    "CriticalFit",
    "CurveFit",
    "EsFit",
    "TableFit",
    "check_losses",
    "fit_critical",
    "fit_curve",
    "fit_es",
    "fit_table",
    "predict_runs",
]
