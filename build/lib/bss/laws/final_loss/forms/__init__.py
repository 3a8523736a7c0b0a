"""Forms of the law of final losses, by name; `fit_table` averages them by left-out runs."""

from bss.laws.final_loss.forms.effective import EFFECTIVE
from bss.laws.final_loss.forms.form import Form
from bss.laws.final_loss.forms.power import ADDITIVE, JOINT, SEPARATE
from bss.laws.final_loss.forms.valley import VALLEY
from bss.registry import Registry

FAMILY: tuple[Form, ...] = (ADDITIVE, JOINT, SEPARATE, EFFECTIVE)
"""Those that say something of other models and budgets; the valley is for one of each."""
FORMS: Registry[Form] = Registry("form", {form.name: form for form in (*FAMILY, VALLEY)}, Form)
