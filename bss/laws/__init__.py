"""From loss curves to laws: what is fitted, what a fit is, and what it predicts.

Callers import from here; the rooms behind it are es (tokens and steps to a loss), critical
(critical batch sizes), final_loss (final losses of finished runs) and functional (whole curves
under any schedule). A name is imported from its room once it is asked for, as a fit is read back
in a tenth of the time that it takes to load what it was made with.
"""

# ruff: noqa: F401 - the imports are for type checkers
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bss.laws.critical.fit import fit_critical
    from bss.laws.critical.values import CriticalFit
    from bss.laws.es.fit import fit_es
    from bss.laws.es.values import EsFit
    from bss.laws.final_loss.fit import fit_table
    from bss.laws.final_loss.table import check_losses
    from bss.laws.final_loss.values import TableFit
    from bss.laws.functional.fit import fit_curve
    from bss.laws.functional.forecast import predict_schedule
    from bss.laws.functional.values import CurveFit

_ROOMS = {
    "CriticalFit": "critical.values",
    "CurveFit": "functional.values",
    "EsFit": "es.values",
    "TableFit": "final_loss.values",
    "check_losses": "final_loss.table",
    "fit_critical": "critical.fit",
    "fit_curve": "functional.fit",
    "fit_es": "es.fit",
    "fit_table": "final_loss.fit",
    "predict_schedule": "functional.forecast",
}
__all__ = [*_ROOMS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """What is exported, from its room."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
