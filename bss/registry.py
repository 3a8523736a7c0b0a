"""Registries: values by registered name, or custom ones by `package.module:ATTRIBUTE`."""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, get_args

from bss.errors import InputError

T = TypeVar("T")


class Registry(dict[str, T]):
    """Values of one kind by registered name; custom ones by `package.module:ATTRIBUTE`.

    Attributes:
        kind: name of the field, for error messages.
        of: the class that a custom value must be an instance of; `type[X]` for a subclass of X.
        loaded: custom values that were used, by name.

    Examples:
        >>> Registry("number", {"one": 1})["one"], Registry("number", {})["math:tau"]
        (1, 6.283185307179586)
    """

    def __init__(self, kind: str, known: Mapping[str, T], of: Any = object) -> None:
        super().__init__(known)
        self.kind = kind
        self.of = of
        self.loaded: dict[str, T] = {}

    def __missing__(self, name: str) -> T:
        """Return the value of `package.module:ATTRIBUTE`; other names are refused."""
        if ":" in name:
            value = load(name, self.kind)
            self._check(name, value)
            self.loaded[name] = value
            return value
        near = difflib.get_close_matches(name, self, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"{self.kind}: {name!r} is unknown; {hint}choose one of {', '.join(self)}, "
            "or name your own as package.module:ATTRIBUTE"
        )

    def _check(self, name: str, value: Any) -> None:
        if bases := get_args(self.of):
            right = isinstance(value, type) and issubclass(value, bases)
            expected = f"a class made of {bases[0].__name__}"
        else:
            right = isinstance(value, self.of)
            expected = getattr(self.of, "__name__", self.of)
        if not right:
            raise InputError(f"{self.kind}: {name} is {type(value).__name__}; expected {expected}")

    def name_of(self, value: T) -> str:
        """Return the name of a value: registered, loaded before, or else its `path_of`."""
        for name, known in (*self.items(), *self.loaded.items()):
            if known == value:
                return name
        return path_of(value, self.kind)


class Registered:
    """A config whose class is named by an entry of its dict, under `key`.

    The base class defines `choices`, the registry; its first class is the default if the key is
    absent. `bss.values` reads and writes them by these hooks.
    """

    key: ClassVar[str]

    @classmethod
    def choices(cls) -> Registry[Any]:
        """Those registered, by name."""
        raise NotImplementedError

    @property
    def chosen(self) -> str:
        """The registered name of its class, or where a worker process imports it from."""
        return self.choices().name_of(type(self))

    @property
    def is_default(self) -> bool:
        """True if its class is the default."""
        return self.chosen == next(iter(self.choices()))

    @property
    def unused(self) -> tuple[str, ...]:
        """The fields without effect, given the others; by default there are none."""
        return ()

    def effective(self) -> Self:
        """Return the same without settings that change nothing, each at its default."""
        return self.without(self.unused)

    def without(self, names: Iterable[str]) -> Self:
        """Return the same with some settings at their defaults."""
        plain: Any = {name: getattr(type(self), name) for name in names}
        return replace(self, **plain) if plain else self  # type: ignore[type-var]

    @classmethod
    def variant(cls, entry: Mapping[str, Any]) -> type:
        """Return the class that a dict names."""
        choices = cls.choices()
        return choices[str(entry.get(cls.key, next(iter(choices))))]

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Its fields, without the name of the class."""
        entry.pop(cls.key, None)
        return entry

    def encoded(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return its fields, preceded by the name of the class."""
        return {self.key: self.chosen, **fields}


def load(path: str, kind: str) -> Any:
    """Import the value of `package.module:ATTRIBUTE`; the working directory is searched last.

    Raises:
        InputError: no such module or attribute, or the module fails.
    """
    module, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"{kind}: {path} cannot be imported ({problem}); expected package.module:ATTRIBUTE"
        ) from None
    return value


def attempt(kind: str, name: str, call: Callable[[], T]) -> T:
    """Return the result of a custom function; raise its errors as one-line InputErrors.

    Raises:
        InputError: it raises anything.
    """
    try:
        return call()
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a user's function may fail in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{kind}: {name} fails ({reason}); correct it") from None


def path_of(value: Any, kind: str) -> str:
    """`module:QUALNAME` of a class, a function or a module's own value, for another process.

    Raises:
        InputError: it was defined in a script, a notebook's cell or a function.
    """
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if name is None and module in sys.modules:
        values = vars(sys.modules[module])
        name = next((key for key, known in values.items() if known is value), None)
    if module in (None, "__main__") or name is None or "<locals>" in name:
        raise InputError(
            f"{kind}: {name or value!r} cannot be imported by a worker process; define it in a "
            "module and name it package.module:ATTRIBUTE"
        )
    return f"{module}:{name}"
