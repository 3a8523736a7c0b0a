"""A corpus of a user's own: numbered documents, made as they are asked for."""

from dataclasses import dataclass

from bss.data.corpus import Corpus


@dataclass(frozen=True)
class Letters(Corpus):
    """As many documents as asked for, of `text`; each second one empty."""

    count: int = 400
    text: str = "abc "

    def texts(self):
        for number in range(self.count):
            yield f"{number} {self.text * 20}" if number % 2 else ""


LETTERS = Letters()
