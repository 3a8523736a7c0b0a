"""A law that is not the package's, as a user writes it."""

from bss.laws import OwnLaw, Parameter


class DataLaw(OwnLaw):
    """Final losses of two sizes and budgets; a run has several evaluations."""

    formula = "L = L_0 + A·N^-a + G·D^-g, N in 100M, D in 1B"
    measured, columns, unit = "loss", ("params", "tokens"), "nats"
    left_out = "params"
    parameters = (
        Parameter("L_0", 0.5, 4.0),
        Parameter("A", 1e-3, 10.0, log=True),
        Parameter("a", 0.05, 2.0, log=True),
        Parameter("G", 1e-3, 10.0, log=True),
        Parameter("g", 0.05, 2.0, log=True),
    )

    def value(self, p, x):
        """Return the loss in nats."""
        by_size = p.A * (x["params"] / 1e8) ** -p.a
        return p.L_0 + by_size + p.G * (x["tokens"] / 1e9) ** -p.g


LAW = DataLaw("data law")
