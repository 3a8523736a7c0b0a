"""E(S): tokens against steps to a target loss. The laws, the design, fitting and comparing.

A law is a value (`bss.laws.es.law.Law`), named here or by where it is imported from.
"""

from bss.laws.es.hyperbola import Hyperbola
from bss.laws.es.law import Law
from bss.laws.es.lopsided import LopsidedValley
from bss.laws.es.piecewise import Piecewise
from bss.laws.es.surface import Surface
from bss.registry import Registry

WITHOUT_LAW = LopsidedValley("lopsided valley")
"""What tells tokens between batches where no law is chosen."""
_EVERY = (
    Surface("surface"),
    Surface("surface, m = 1/2", m=0.5),
    Surface("surface, m free", m=None),
    Surface("surface, Adam clock", B_phi=None),
    Piecewise("piecewise"),
    Hyperbola("hyperbola"),
    WITHOUT_LAW,
)
LAWS: Registry[Law] = Registry("law", {law.name: law for law in _EVERY}, of=Law)
FAMILIES = tuple(law for law in LAWS.values() if law.family == law)
