"""What a study of late switching asks, and what it refuses."""

from dataclasses import dataclass

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_start
from bss.sweeps.contenders import rates_near
from experiments.study import TunedStudy


@dataclass(frozen=True)
class Entry:
    """A batch schedule to be trained.

    Attributes:
        name: in the tables.
        batch: as text, "0:4 70%:32".
        rates: learning rates; by default those of the nearest constant, as es_contenders has them.
        until: part of the tokens at which it stops; below 1 it serves the best switch point alone.
        alone: trained from the start at constant rate, whatever it shares with others.
    """

    name: str
    batch: str
    rates: tuple[float, ...] = ()
    until: float = 1.0
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Study(TunedStudy):
    """The question.

    Attributes:
        small: the batch before a switch,
        large: and after it, in sequences; both of the grid.
        schedules: whose batch changes. Those that switch once from small to large and take all
            tokens are the pilots the law is fitted to, with the constants; the others it has not
            seen.
        forks: parts of the tokens at which runs keep a checkpoint for branches.
        budgets: parts of the tokens at which the best switch point is sought.
        starts: parts of the tokens before which the law leaves losses out; that which predicts
            left-out pilots best is kept.
        extrapolated: multiples of the tokens at which the law is asked for it too.
        cosine: part of the tokens that the runs under a cosine have; 1 for equal tokens.
        continued: multiple of the tokens to which the large batch goes on, so that there are losses
            at as many steps as after a switch; 1 for none.
        continued_seeds: for these seeds.
    """

    small: int
    large: int
    schedules: tuple[Entry, ...]
    forks: tuple[float, ...]
    budgets: tuple[float, ...]
    starts: tuple[float, ...] = (0.0, 0.25, 0.5)
    extrapolated: tuple[float, ...] = (4.0, 16.0)
    cosine: float = 1.0
    continued: float = 1.0
    continued_seeds: tuple[int, ...] = (0,)
    resamples: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self)

    @property
    def fork_tokens(self) -> tuple[int, ...]:
        """Where runs keep a checkpoint for branches."""
        parts = {round(part * self.tokens) for part in self.forks}
        return tuple(sorted(parts | {decay_start(self.tokens, self.decay)}))

    def schedule(self, entry: Entry) -> BatchSchedule:
        """The batches of an entry, over the tokens."""
        return BatchSchedule.parse(entry.batch, total=self.tokens)

    def rates_of(self, entry: Entry) -> tuple[float, ...]:
        """The rates that an entry is trained at."""
        schedule = self.schedule(entry)
        near = schedule.mean_batch(self.tokens) if entry.alone else schedule.batches[0]
        return entry.rates or rates_near(self.rates, near)

    def switches_once(self, entry: Entry) -> bool:
        """Whether it switches once, from small to large."""
        return self.schedule(entry).batches == (self.small, self.large)


def check(study: Study) -> None:
    """Refuses a study that cannot be run."""
    if not 0 < study.cosine <= 1:
        raise InputError(f"cosine is {study.cosine}; expected a part of the tokens, at most 1")
    if study.continued < 1:
        raise InputError(f"continued is {study.continued}; expected 1 or more, 1 for none")
    for name in ("forks", "budgets"):
        parts = getattr(study, name)
        if not parts or list(parts) != sorted(set(parts)) or parts[0] <= 0 or parts[-1] > 1:
            raise InputError(f"{name} are {parts}; expected rising parts of the tokens, to 1")
    if any(not 0 <= part < 1 for part in study.starts) or not study.starts:
        raise InputError(f"starts are {study.starts}; expected parts of the tokens, below 1")
    if any(multiple < 1 for multiple in study.extrapolated):
        raise InputError(f"extrapolated are {study.extrapolated}; expected multiples of 1 or more")
    if not study.small < study.large or not {study.small, study.large} <= set(study.rates):
        raise InputError(
            f"small, large are {study.small}, {study.large}; expected two batches of the grid, "
            f"{sorted(study.rates)}, the smaller first"
        )
    for batch in (study.small, study.large):
        if study.shared_rate not in study.rates[batch]:
            raise InputError(
                f"shared_rate is {study.shared_rate:g}; expected one of the rates of batch {batch} "
                f"in the grid, {study.rates[batch]}"
            )
    names = [entry.name for entry in study.schedules]
    if len(set(names)) < len(names):
        raise InputError(f"schedules are named {names}; name each once")
    for entry in study.schedules:
        last = study.schedule(entry).starts[-1]
        if not last < entry.until * study.tokens or entry.until > 1:
            raise InputError(
                f"schedules: {entry.name} is {entry.batch!r} until {entry.until:g} of the tokens; "
                "expected its last switch before that, and at most 1"
            )
    pilots = [e for e in study.schedules if study.switches_once(e) and e.until == 1]
    if sum(study.shared_rate in study.rates_of(entry) for entry in pilots) < 2:
        raise InputError(
            f"schedules: expected two or more that switch once from batch {study.small} to "
            f"{study.large} at rate {study.shared_rate:g}, so that the law is identified"
        )
