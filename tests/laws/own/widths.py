"""A law of a column that no table of the package has."""

from bss.laws import OwnLaw, Parameter


class WidthLaw(OwnLaw):
    """A power of the width."""

    formula, measured, columns = "y = A·w^a", "y", ("width",)
    parameters = (Parameter("A", 0.1, 10.0), Parameter("a", 0.0, 2.0))

    def value(self, p, x):
        """Return y."""
        return p.A * x["width"] ** p.a


LAW = WidthLaw("widths")
