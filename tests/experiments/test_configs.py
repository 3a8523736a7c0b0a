import hashlib
import importlib
import json

import pytest

from configs.overlays import DEVICES, at_size

DIGESTS = {
    "critical_batch": "8043859f886b17ec",
    "critical_theory": "b1c6d475ad677b6c",
    "es_ablations": "1779a78e93793147",
    "es_curve": "0c07f6b285acc409",
    "es_wsd": "3e17e2be9226cc9d",
    "irreducible_loss": "ced893d7826c6f86",
    "late_switch": "622b39b7fddd2867",
    "momentum": "bba81df442feabd4",
    "optimal_schedule": "b5b2fe6a5e76685c",
    "predictions": "972ecdff01e40377",
    "second_moment": "42ec456ef87ba1ab",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_every_size_asks_for_what_it_asked_for(name):
    module = importlib.import_module(f"configs.{name}")
    asked = {size: json.loads(module.get_config(size).to_json()) for size in module.SIZES}
    for config in asked.values():  # how a machine is used decides no number
        config.pop("engine", None)
        engine = config.get("setup", {}).get("engine", {})
        config.get("setup", {})["engine"] = {k: v for k, v in engine.items() if k not in DEVICES}
        schedule = config.get("setup", {}).get("schedule", {})
        assert schedule.pop("rate", "wsd") == "wsd"  # named for the command line alone
    text = json.dumps(asked, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name]


def test_an_overlay_replaces_values_and_merges_groups():
    base = {"grid": [1, 2], "setup": {"model": "nano", "engine": {"runs": "runs/{size}"}}}
    overlay = {"grid": [3], "setup.engine": {"workers": 2}, "setup.model": "pico"}
    assert at_size("big", base, {"big": overlay}).to_dict() == {
        "grid": [3],
        "setup": {"model": "pico", "engine": {"runs": "runs/big", "workers": 2}},
    }
    group = {"setup.model": {"family": "mine:FAMILY", "width": 3}}
    assert at_size("own", base, {"own": group}).to_dict()["setup"]["model"] == group["setup.model"]
    with pytest.raises(ValueError, match="size 'huge': expected one of big"):
        at_size("huge", base, {"big": overlay})
