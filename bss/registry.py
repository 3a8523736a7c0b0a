"""Registries: values by registered name, or custom ones by `package.module:ATTRIBUTE`.

A custom name that a person types, on the command line, in Python or in a config to train, is
imported. A fit, the directory of a run and a table are data. While such a file is read
(`reading_data`), its custom names are refused. A name is used if the user has named or passed that
value before, or trusts the file (`trusting`, `--trust`). Looking a name up imports nothing, ever.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, get_args

from bss.errors import InputError
from bss.renamed import LAWS

T = TypeVar("T")

_reading: ContextVar[bool] = ContextVar("reading", default=False)
_trusts_all: ContextVar[bool] = ContextVar("trusts_all", default=False)
_trusted: ContextVar[Mapping[str, Any]] = ContextVar("trusted", default=MappingProxyType({}))


class UntrustedError(InputError):
    """A file that is only read names code, and nobody said that the file is trusted."""


@contextmanager
def reading_data() -> Iterator[None]:
    """Read a file as data: a `module:ATTRIBUTE` in it is refused unless the user gave the value."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


@contextmanager
def trusting(*values: Any) -> Iterator[None]:
    """Let the files that are read in the block name code.

    Args:
        *values: custom classes, functions or values that a file may name; without any, the file may
            name every `module:ATTRIBUTE`, which is imported.

    Raises:
        InputError: a value was defined in a script or in a function, so that no file can name it.

    Examples:
        >>> numbers = Registry("number", {})
        >>> with reading_data(), trusting():
        ...     numbers.load("math:tau")
        6.283185307179586
    """
    all_token = _trusts_all.set(_trusts_all.get() or not values)
    named = {path_of(value, "trust"): value for value in values}
    token = _trusted.set({**_trusted.get(), **named})
    try:
        yield
    finally:
        _trusted.reset(token)
        _trusts_all.reset(all_token)


class Registry(dict[str, T]):
    """Values of one kind by registered name; custom ones by `package.module:ATTRIBUTE`.

    Attributes:
        kind: name of the field, for error messages.
        of: the class that a custom value must be an instance of; `type[X]` for a subclass of X.
        loaded: custom values that a person has named or passed, by name.

    Examples:
        >>> numbers = Registry("number", {"one": 1})
        >>> numbers["one"], numbers.load("math:tau")
        (1, 6.283185307179586)
    """

    def __init__(self, kind: str, known: Mapping[str, T], of: Any = object) -> None:
        super().__init__(known)
        self.kind = kind
        self.of = of
        self.loaded: dict[str, T] = {}

    def load(self, name: str) -> T:
        """Return a registered value, or import the one that a person names.

        Raises:
            UntrustedError: a file that is only read names it.
            InputError: the name is unknown, cannot be imported, or is of another type.
        """
        if ":" in name and name not in self and name not in self.loaded:
            value = load(name, self.kind)
            self._check(name, value)
            self.loaded[name] = value
        return self[name]

    def __missing__(self, name: str) -> T:
        """Return a custom value that was loaded before; other names are refused."""
        if name in self.loaded:
            return self.loaded[name]
        if ":" in name:
            raise UntrustedError(
                f"{self.kind}: {name} was not loaded; name it where a person does, or load it by "
                "the registry's `load`"
            )
        near = difflib.get_close_matches(name, self, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        if LAWS.get(name) in self:
            hint = f"it is {LAWS[name]!r} now; "
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
        """Return the name of a value: registered, loaded before, or else its `path_of`.

        A value that is passed here is known from then on, so that its name reads back.
        """
        for name, known in (*self.items(), *self.loaded.items()):
            if known == value:
                return name
        path = path_of(value, self.kind)
        self.loaded[path] = value
        return path


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
        return choices.load(str(entry.get(cls.key, next(iter(choices)))))

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
        UntrustedError: a file that is only read names it.
        InputError: no such module or attribute, or the module fails.
    """
    if path in _trusted.get():
        return _trusted.get()[path]
    if _reading.get() and not _trusts_all.get():
        raise UntrustedError(_untrusted(path, kind))
    token = _reading.set(False)  # what the module does itself is its own
    try:
        return _imported(path, kind)
    finally:
        _reading.reset(token)


def _imported(path: str, kind: str) -> Any:
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


def _untrusted(path: str, kind: str) -> str:
    return (
        f"{kind}: {path} is code that the file names, and reading runs none; if you trust the "
        "file, pass --trust, or in Python read it in `with bss.registry.trusting():`"
    )


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
