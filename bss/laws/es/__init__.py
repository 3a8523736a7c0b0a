"""E(S), the tokens and steps to a target loss: laws, data, cross-validation and fits.

A law is a value (`bss.laws.es.law.Law`), registered here or imported by a user.
"""

from bss.laws.es.law import AsymmetricMinimum, Hyperbola, Law, Piecewise, Surface
from bss.registry import Registry

INTERPOLATOR = AsymmetricMinimum("asymmetric")
"""Interpolates tokens between batch sizes if there are too few to cross-validate a law."""
_EVERY = (
    Surface("surface"),
    Surface("surface, m = 1/2", m=0.5),
    Surface("surface, m free", m=None),
    Surface("surface, Adam clock", B_phi=None),
    Piecewise("piecewise"),
    Hyperbola("hyperbola"),
    INTERPOLATOR,
)
LAWS: Registry[Law] = Registry("law", {law.name: law for law in _EVERY}, of=Law)
FAMILIES = tuple(law for law in LAWS.values() if law.family == law)
