"""E(S), the tokens and steps to a target loss: laws, data, cross-validation and fits.

A law is a value (`bss.laws.es.law.Law`), registered here or imported by a user.
"""

from bss.laws.es.law import FAMILIES, INTERPOLATOR, LAWS

__all__ = ["FAMILIES", "INTERPOLATOR", "LAWS"]
