"""The best batch of a run before it is trained: by published rules, a fit and what was measured."""

from bss.advice.advice import Advice, Cost, advise
from bss.advice.fit_advice import FitAdvice

__all__ = ["Advice", "Cost", "FitAdvice", "advise"]
