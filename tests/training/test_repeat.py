"""A run beyond one pass over its corpus."""

import warnings

import pytest

from bss.data.corpus import Corpus
from bss.data.prepare import prepare
from bss.training.batches import TextSource
from bss.training.run_config import DataConfig
from bss.training.sharding import make_mesh


class Numbers(Corpus):
    def texts(self):
        return (f"document {n} of these\n" * 9 for n in range(99))


def test_passes_are_counted_and_told(tmp_path):
    shards = prepare(Numbers(), root=tmp_path)
    data = DataConfig(seq_len=64, repeat=True)
    source = TextSource(shards, data, make_mesh())
    one = (shards.split("train").tokens - 1) // 64
    with pytest.warns(RuntimeWarning, match=r"data\.repeat: 2\.50 passes over the corpus"):
        source.check(round(one * 2.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source.check(one)
        source.batch(one, 2, 1, 2)
