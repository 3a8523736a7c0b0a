"""The best batch of a run before it is trained: by published rules, a fit and what was measured."""

from bss.advice.advice import Advice, Cost, advise
from bss.advice.growth import ENDINGS, Growth, growth
from bss.advice.told import Told

__all__ = ["ENDINGS", "Advice", "Cost", "Growth", "Told", "advise", "growth"]
