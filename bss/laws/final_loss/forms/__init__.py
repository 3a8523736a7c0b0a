"""Forms of the law of final losses, by name; `fit_table` chooses among them by left-out runs."""

from bss.laws.final_loss.forms.effective import EFFECTIVE
from bss.laws.final_loss.forms.form import Form
from bss.laws.final_loss.forms.parabola import PARABOLA
from bss.laws.final_loss.forms.power import ADDITIVE, JOINT, SEPARATE
from bss.registry import Registry

FAMILY: tuple[Form, ...] = (ADDITIVE, JOINT, SEPARATE, EFFECTIVE)
"""Those that say something of other models and budgets; the parabola is for one of each."""
FORMS: Registry[Form] = Registry("form", {form.name: form for form in (*FAMILY, PARABOLA)}, Form)
