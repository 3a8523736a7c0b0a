"""The best rates of a fit as a table, for the command line and the report."""

from bss.cells import Table, estimate, number
from bss.laws.base import UNIDENTIFIED, Estimate
from bss.laws.final_loss.best import BestRates
from bss.units import rounded_tokens


def rates_table(best: BestRates, seq_len: float | None) -> Table:
    """A row for each size and budget; batches in sequences where their length is known."""
    unit, noun = (seq_len, "sequences") if seq_len else (1, "tokens")

    def pair(costs: tuple[Estimate, Estimate]) -> str:
        return " and ".join(number(cost.value, 2) for cost in costs)

    cells = {
        "N": lambda at: rounded_tokens(at.params),
        "D (tokens)": lambda at: rounded_tokens(at.tokens),
        f"batch ({noun})": lambda at: number(at.batch / unit, 3),
        "best rate": lambda at: estimate(at.lr, 1, 3),
        "rate ÷ 2, × 2": lambda at: pair(at.off_lr),
        "batch ÷ 2, × 2": lambda at: pair(at.off_batch),
        "B_opt at rate ÷ 2, × 2": lambda at: " and ".join(f"× {x:.2f}" for x in at.batch_at),
        "": lambda at: at.lr.note.removeprefix(UNIDENTIFIED),
    }
    title = "best rate at the best batch; what half and twice of either cost in nats, the rate "
    title += "tuned to another batch; by how much B_opt is another at half and twice the rate"
    return Table.of(title, best.optima, cells)
