"""Which dataclasses of a room could be changed after they were made."""

import dataclasses
import importlib
import pkgutil


def changeable(room: str) -> set[str]:
    """The names of a room's dataclasses that are not frozen."""
    package = importlib.import_module(f"bss.{room}")
    found = set()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if not isinstance(value, type) or value.__module__ != module.name:
                continue
            if dataclasses.is_dataclass(value) and not value.__dataclass_params__.frozen:  # pyrefly: ignore
                found.add(value.__name__)
    return found
