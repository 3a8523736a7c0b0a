"""What callers may import from bss.laws, so that a refactoring behind it breaks nobody."""

import ast
from inspect import signature
from pathlib import Path

import pytest

import bss.laws

EXPORTS = {
    "BranchFit", "CriticalFit", "CurveFit", "EqualFit", "EsFit", "GroupFits", "LossFit", "LrFit",
    "OwnFit", "OwnLaw", "Parameter", "check_equal", "check_losses", "check_rates", "columns_of",
    "equal_hint", "fit_branches", "fit_critical", "fit_curve", "fit_equal", "fit_es", "fit_groups",
    "fit_loss", "fit_lr", "fit_own", "last_losses", "predict_schedule",
}  # fmt: skip
ROOT = Path(__file__).parents[2]


def test_the_names():
    assert set(bss.laws.__all__) == EXPORTS
    assert all(callable(getattr(bss.laws, name)) for name in EXPORTS)


def test_fits_have_one_shape():
    for name in ("CriticalFit", "CurveFit", "LossFit", "LrFit"):
        kind = getattr(bss.laws, name)
        assert [*signature(kind.predict).parameters][:2] == ["self", "runs"]
        assert {"summary", "residuals", "to_dict", "from_dict", "cv_error"} < {*dir(kind)}


@pytest.mark.parametrize("folder", ["bss", "experiments"])
def test_callers_import_them_from_there(folder):
    laws = ROOT / "bss/laws"
    for path in (p for p in (ROOT / folder).rglob("*.py") if laws not in p.parents):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bss.laws."):
                deep = EXPORTS & {alias.name for alias in node.names}
                assert not deep, f"{path}: import {', '.join(deep)} from bss.laws"
