"""Names of held-out numbers in a curve: training writes them, plots and comparisons read them."""

from dataclasses import dataclass

EVAL = "eval"
TEST = "test"
"""The sets of every run: evaluated along it, and once when it has finished."""


@dataclass(frozen=True)
class HeldOutColumn:
    """A column of a held-out number; as text SET_METRIC, or SET_METRIC_avg_HALFLIFE.

    Attributes:
        metric: Name of the metric.
        of: the held-out set.
        half_life: Half-life of the weight average that is evaluated; empty for the weights.

    Examples:
        >>> str(HeldOutColumn(half_life="4%")), HeldOutColumn("accuracy", "wiki").error
        ('eval_loss_avg_4%', 'wiki_accuracy_se')
    """

    metric: str = "loss"
    of: str = EVAL
    half_life: str = ""

    def __str__(self) -> str:
        average = f"_avg_{self.half_life}" if self.half_life else ""
        return f"{self.of}_{self.metric}{average}"

    @property
    def error(self) -> str:
        """The column of its standard error over the sequences."""
        return f"{self}_se"
