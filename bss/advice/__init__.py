"""The best batch of a run before it is trained: by published rules, a fit and what was measured."""

from bss.advice.advice import Advice, Cost, advise
from bss.advice.fit_advice import FitAdvice
from bss.advice.growth import ENDINGS, Growth, growth

__all__ = ["ENDINGS", "Advice", "Cost", "FitAdvice", "Growth", "advise", "growth"]
