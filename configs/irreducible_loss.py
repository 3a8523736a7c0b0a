"""The fitted L_0, compared with the entropy of a synthetic language.

    python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke

| size  | models         | tokens per run  | cost                                               |
|-------|----------------|-----------------|----------------------------------------------------|
| smoke | 12k parameters | 700K            | 41M tokens; 28 min on 2 cores busy with other work |
| cpu   | 99k parameters | 2M              | 132M tokens; not measured                          |

Expected at smoke size: L_0 of the Adam surface is 0.010 nats above the entropy of 1.480 and 0.003
below the best model's loss. The other surfaces are 0.13 to 0.20 nats too low.

With a vocabulary of 16, the logits have rank 15, which is below the width of pico (32). The model
can therefore come within 0.013 nats of the entropy of the language.
"""

from configs.overlays import SETUP, sized

BASE = {
    "title": "The irreducible loss that E(S) laws find, against the truth",
    "batches": (4, 8, 16, 32, 64),
    "seeds": tuple(range(10)),
    "vocab_size": 16,
    "targets": 8,
    "target_warmup": 30_000,
    "share": 0.6,
    "entropy_sequences": 65_536,
    "reference_tokens": 3_000_000,
    "reference_batch": 64,
    "references": 2,
    "resamples": 500,
    "results": "runs/irreducible_loss_{size}/results",
    "engine": "local",
    "setup": SETUP,
    "setup.model": "pico",
    "setup.text": {"corpus": "synthetic", "seq_len": 32},
    "setup.optimizer.beta2_half_life": 7_000,
    "setup.schedule": {"tokens": 700_000, "warmup": 10_000},
    "setup.evaluation": {"test_tokens": 0, "per_efold": 20, "first": 50_000},
    "setup.averages": (),
    "setup.engine": {"runs": "runs/irreducible_loss_{size}", "buckets": (1, 2, 4, 8)},
}
SIZES = {
    "smoke": {},
    "cpu": {
        "target_warmup": 120_000,
        "reference_tokens": 16_000_000,
        "setup.model": "nano",
        "setup.schedule.tokens": 2_000_000,
    },
}

get_config = sized(BASE, SIZES, default="smoke")
