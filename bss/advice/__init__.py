"""The best batch size of a planned run, from published sources or from a user's own fit."""

from bss.advice.advice import Advice, advise, recommend
from bss.advice.fit_advice import FitAdvice

__all__ = ["Advice", "FitAdvice", "advise", "recommend"]
