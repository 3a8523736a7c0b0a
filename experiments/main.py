"""Running an experiment from the command line."""

import json
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from absl import app, flags, logging
from ml_collections import config_flags

from bss.errors import InputError
from bss.sweeps.results import program
from bss.training.distributed import DistributedConfig, initialized
from bss.training.hardware import look_for_present
from bss.values import from_dict
from experiments.study import say

S = TypeVar("S")


def run_experiment(study: type[S], experiment: Callable[[S], None], *, joint: bool = False) -> None:
    """Parse --config into a frozen study and run it.

    Bad input is one line and status 2. Ctrl-C and SIGTERM save every run and exit with 130 and 143;
    the same command continues.

    Args:
        study: A dataclass with the fields of the config.
        experiment: Runs the study.
        joint: Whether several processes may train every run together; the fields of
            `DistributedConfig` are flags then.
    """
    look_for_present()
    config = config_flags.DEFINE_config_file("config", lock_config=True)
    if joint:
        _define_distributed()

    def main(arguments: list[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}")
        logging.set_verbosity(logging.WARNING)
        warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            values = from_dict(study, json.loads(config.value.to_json_best_effort()))
            known = fields(DistributedConfig) if joint else ()
            given: dict[str, Any] = {f.name: flags.FLAGS[f.name].value for f in known}
            with initialized(DistributedConfig(**given)):
                experiment(values)
        except (InputError, OSError) as error:
            print(f"{_name()}: {_one_line(error)}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            say("interrupted; every run is saved, the same command continues")
            sys.exit(130)

    flags.mark_flag_as_required("config")
    app.run(main, flags_parser=_parse_flags)


def _define_distributed() -> None:
    flags.DEFINE_integer("processes", 1, "number of processes that train each run together")
    flags.DEFINE_string("coordinator", "", "HOST:PORT of process 0, or auto: on a cluster")
    flags.DEFINE_integer("process", None, "index of this process, from 0, with a coordinator")
    flags.DEFINE_float("init_timeout", 60.0, "seconds in which all processes must connect")


def _parse_flags(arguments: list[str]) -> list[str]:
    """Return flags as absl parses them; a bad one is one line and status 2."""
    try:
        return flags.FLAGS(arguments)
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        say(f"{_name()}: {_one_line(error)}; see the config's docstring")
        sys.exit(2)


def _name() -> str:
    return program().removeprefix("python -m ")


def _one_line(error: Exception) -> str:
    """Return an error of absl or ml_collections, which may have a traceback, as one line."""
    lines = str(error).replace("\\n", "\n").splitlines()
    messages = [line.strip().rstrip(".") for line in lines if line.strip()]
    return messages[-1] if any("Traceback" in line for line in messages) else " ".join(messages)
