"""The committed fit of a published table, by which advice is given without a fit of one's own.

170 final losses of arXiv 2503.04715, 17 (N, D). Made by `bss fit table
results/published/steplaw_dense_best.csv --resamples 50 --json`; a test makes it again.
"""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from bss.advice.fit_advice import FitAdvice
from bss.advice.of_table import fit_advice
from bss.files import read_json
from bss.laws import TableFit
from bss.rules import Setting

FIT = Path(str(files("bss.laws"))) / "published" / "steplaw_dense.json"
NAME = "published final losses, arXiv 2503.04715, 215M to 1.07B parameters, 4B to 100B tokens"
BASIS = (
    "the published runs are said to decay by cosine, with beta2 0.95 per step at every batch; "
    "where beta2 keeps a half-life in tokens the best batch can be smaller (128 → 64 in "
    "results/published/marin_beta2.csv)"
)


def published(setting: Setting) -> FitAdvice:
    """What the committed fit says; none of its runs is the asker's."""
    fit = TableFit.from_dict(read_json(FIT, "install bss again"))
    advice = fit_advice(fit, setting, "cosine", NAME)
    return replace(advice, measured=False, notes=(*advice.notes, BASIS))
