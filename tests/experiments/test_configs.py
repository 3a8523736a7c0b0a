import hashlib
import importlib
import json

import pytest

from configs.overlays import at_size

DIGESTS = {
    "critical_batch": "bb636712c30ea306",
    "critical_theory": "b1c6d475ad677b6c",
    "es_ablations": "462b93cbcce23189",
    "es_curve": "d80880dca4fecc81",
    "es_wsd": "43c3c9eee5fcd113",
    "irreducible_loss": "cf60cfddadbf8fc7",
    "late_switch": "8c5374ff57e80384",
    "optimal_schedule": "b5b2fe6a5e76685c",
    "predictions": "773cc0909a006d7a",
    "second_moment": "922b7e1bbe9f5d03",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_every_size_asks_for_what_it_asked_for(name):
    module = importlib.import_module(f"configs.{name}")
    asked = {size: json.loads(module.get_config(size).to_json()) for size in module.SIZES}
    text = json.dumps(asked, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name]


def test_an_overlay_replaces_values_and_merges_groups():
    base = {"grid": [1, 2], "setup": {"model": "nano", "engine": {"runs": "runs/{size}"}}}
    overlay = {"grid": [3], "setup.engine": {"workers": 2}, "setup.model": "pico"}
    assert at_size("big", base, {"big": overlay}).to_dict() == {
        "grid": [3],
        "setup": {"model": "pico", "engine": {"runs": "runs/big", "workers": 2}},
    }
    with pytest.raises(ValueError, match="size 'huge': expected one of big"):
        at_size("huge", base, {"big": overlay})
