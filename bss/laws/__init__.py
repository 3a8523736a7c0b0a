"""From loss curves to laws: what is fitted, what a fit is, and what it predicts.

Import the public names from this package. Its subpackages are:

- es: tokens and steps to a target loss.
- critical: critical batch sizes.
- final_loss: final losses of finished runs.
- equal: the best batch size in a fixed time.
- lr: best learning rates of sweeps.
- functional: whole loss curves under any schedule.
- ramps: what a measured noise scale, and branches from checkpoints, allow the batch to be.
- own: a law of a user, as a formula.

A subpackage is imported at the first use of one of its names. Reading a stored fit therefore does
not load the code that fits, which takes ten times as long.
"""

# ruff: noqa: F401 - the imports are for type checkers
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bss.errors import InputError
from bss.files import as_path, read_json
from bss.installation import attach
from bss.registry import UntrustedError

if TYPE_CHECKING:
    from bss.laws.critical.fit import fit_critical
    from bss.laws.critical.values import CriticalFit
    from bss.laws.equal.data import check_equal, equal_hint, last_losses
    from bss.laws.equal.fit import fit_equal
    from bss.laws.equal.values import EqualFit
    from bss.laws.es.fit import fit_es
    from bss.laws.es.values import EsFit
    from bss.laws.final_loss.fit import fit_loss
    from bss.laws.final_loss.table import check_losses
    from bss.laws.final_loss.values import LossFit
    from bss.laws.functional.fit import fit_curve
    from bss.laws.functional.values import CurveFit, predict_schedule
    from bss.laws.groups import GroupFits, columns_of, fit_groups
    from bss.laws.lr.data import check_rates
    from bss.laws.lr.fit import fit_lr
    from bss.laws.lr.values import LrFit
    from bss.laws.own.fit import fit_own
    from bss.laws.own.law import OwnLaw
    from bss.laws.own.values import OwnFit
    from bss.laws.problem import Parameter
    from bss.laws.ramps.branches import BranchFit, fit_branches

_EXPORTS, __getattr__ = attach(__name__, __file__)
FITS = {
    "es": "EsFit",
    "critical": "CriticalFit",
    "loss": "LossFit",
    "curve": "CurveFit",
    "lr": "LrFit",
    "branches": "BranchFit",
    "own": "OwnFit",
    "equal": "EqualFit",
}
"""The class of each kind of fit, as its JSON names the kind."""
GROUPS = "groups"
"""The kind of the JSON of fits by groups of rows, one of the others each."""
__all__ = [*_EXPORTS]


def fit_from_dict(entry: dict[str, Any]) -> Any:
    """Return a fit of any kind, or the fits of groups, from its JSON.

    Raises:
        InputError: The JSON is damaged or has another schema.
    """
    kind = entry.get("kind")
    if kind == GROUPS:
        return __getattr__("GroupFits").from_dict(entry, fit_from_dict)
    if not isinstance(kind, str) or kind not in FITS:
        raise InputError(f"fit: kind {kind!r}; expected one of {', '.join(FITS)}")
    return __getattr__(FITS[kind]).from_dict(entry)


def read_fit(path: str | Path, kinds: Collection[str] = tuple(FITS), field: str = "fit") -> Any:
    """Read a fit from the JSON of `bss fit --json`.

    Args:
        path: the file.
        kinds: kinds of fit that are expected, as in `FITS`.
        field: the option that named the file, for error messages.

    Returns:
        An EsFit, CriticalFit, LossFit, CurveFit, LrFit, BranchFit, OwnFit or EqualFit; of a fit
        with `by` a mapping from group to fit, whatever their kind.

    Raises:
        InputError: The file has no fit, or a fit of another kind, or is damaged.

    Examples:
        >>> from importlib.resources import files
        >>> read_fit(files("bss.laws") / "published" / "steplaw_dense.json").KIND
        'loss'
    """
    path = as_path(path, field)
    entry = read_json(path, "save a fit with `bss fit … --json`", field)
    kind = entry.get("kind")
    if str(kind) in (*kinds, GROUPS):
        try:
            return fit_from_dict(entry)
        except UntrustedError as error:
            raise UntrustedError(f"{field} {path}: {error}") from None
    problem = f"is of kind {kind!r}, no fit"
    if str(kind) in FITS:
        problem = f"is a fit of kind {kind!r}, which `bss predict` reads"
    wanted = " or ".join(sorted(kinds))
    raise InputError(f"{field} {path}: {problem}; give a fit of kind {wanted}")
