import hashlib
import importlib
import json

import pytest

from configs.overlays import at_size

DIGESTS = {
    "critical_batch": "6158a19cc438cefc",
    "critical_theory": "b1c6d475ad677b6c",
    "es_ablations": "a766763285c34377",
    "es_curve": "5107dd2dbbc1c2af",
    "es_wsd": "fc4b0b9f9d89cf59",
    "irreducible_loss": "ced893d7826c6f86",
    "late_switch": "49df423976ecb3b9",
    "optimal_schedule": "b5b2fe6a5e76685c",
    "predictions": "972ecdff01e40377",
    "second_moment": "e037c68bf370a9be",
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
