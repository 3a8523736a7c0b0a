"""The run that a sweep overlays, on token shards that are prepared first where they are missing."""

from pathlib import Path

from bss.data.prepare import prepare
from bss.data.stream import Stream
from bss.sweeps.setup import EngineConfig, RunSetup, planned_run
from bss.training.config import RunConfig
from bss.training.devices.processes import in_turn
from bss.training.execution import Execution
from bss.training.source import SYNTHETIC


def prepared_run(setup: RunSetup, engine: EngineConfig) -> tuple[RunConfig, Execution]:
    """A run and how it is executed, on shards that are prepared first where missing."""
    text = setup.text
    if text.corpus == SYNTHETIC:
        run, shards = planned_run(setup, content=SYNTHETIC), ""
    else:
        prepared = in_turn(
            lambda: prepare(
                text.corpus, text.tokenizer, Path(text.root), text_feature=text.text_feature
            )
        )
        stream = Stream(prepared.tokens("train"), text.seq_len, seed=0)
        stream.check(setup.schedule.tokens // text.seq_len)
        run = planned_run(setup, prepared.vocab_size, prepared.content_hash)
        shards = str(prepared.directory)
    return run, engine.execution(shards)
