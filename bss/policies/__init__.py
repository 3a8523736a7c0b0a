"""Policies derive a batch schedule from a fitted law and a learning rate.

A policy is called with (basis, tokens, limits) and returns a `BatchSchedule`. Its settings are the
fields of a frozen dataclass. Policies are registered here. A custom policy
is any callable with this signature, named `package.module:ATTRIBUTE` or passed directly.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from bss.errors import InputError
from bss.policies.fewest_steps import FewestSteps
from bss.policies.follow_budget import FollowBudget
from bss.policies.follow_optimum import FollowOptimum, Soonest
from bss.policies.functional_best import FunctionalBest
from bss.policies.last_crossing import LastCrossing
from bss.policies.policy import Policy
from bss.policies.unfitted import LateSwitch, Theory
from bss.registry import Registry
from bss.values import from_dict, to_dict

POLICIES: Registry[Policy] = Registry(
    "policy",
    {
        "follow-optimum": FollowOptimum(),
        "best-batch": FollowBudget(),
        "late-switch": LateSwitch(),
        "functional-best": FunctionalBest(),
        "soonest": Soonest(),
        "theory": Theory(),
        "last-crossing": LastCrossing(),
        "fewest-steps": FewestSteps(),
    },
    Policy,
)


def policy_named(name: str, settings: Sequence[str] = ()) -> Policy:
    """Return a policy by its name, with some of its settings changed.

    Args:
        name: A registered name, or `package.module:ATTRIBUTE`.
        settings: Texts of the form "NAME=VALUE".

    Raises:
        InputError: If the policy or setting is unknown, or the value is invalid.

    Examples:
        >>> policy_named("late-switch", ["at=0.8", "factor=4"])
        LateSwitch(at=0.8, factor=4.0, batch=None)
    """
    return with_settings(name, parse_settings(settings))


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings of a policy from texts NAME=VALUE.

    Raises:
        InputError: If a text is not of this form.

    Examples:
        >>> parse_settings(["at=0.8", "step_time=0.9 + 0.05*B"])
        {'at': 0.8, 'step_time': '0.9 + 0.05*B'}
    """
    given: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"setting {text!r}: expected NAME=VALUE, as at=0.8")
        try:
            given[key] = json.loads(value)
        except json.JSONDecodeError:
            given[key] = value
    return given


def with_settings(name: str, settings: Mapping[str, Any]) -> Policy:
    """Return a policy by its name, with some of its settings changed.

    Raises:
        InputError: If the policy or a setting is unknown, or a value is invalid.

    Examples:
        >>> with_settings("late-switch", {"at": 0.8})
        LateSwitch(at=0.8, factor=8.0, batch=None)
    """
    policy = POLICIES.load(name)
    if not settings:
        return policy
    if not is_dataclass(policy):
        raise InputError(f"policy: {name} has no settings; leave out {next(iter(settings))!r}")
    return from_dict(type(policy), {**to_dict(policy), **settings}, f"{name}.")
