"""Open doors: things that go by a name, whether built in, registered in Python, or offered by another package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from syncline.errors import SpecError, one_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one sort by name.

    A name is looked for among what was registered, then among the entry points that installed packages have in the
    group; one of the form ``module:name`` is imported from where it says. Other packages are asked only for names that
    are not known.

    Args:
        group: the entry points' group.
        check: returns what was found as it is kept, or raises ``TypeError`` that says what would be accepted.

    >>> registry = Registry("some.group", lambda found: found)
    >>> registry.register("four", 4)
    >>> registry.find("four"), registry.find("math:pi") > 3, registry.names()
    (4, True, ['four'])
    """

    def __init__(self, group: str, check: Callable[[Any], T]) -> None:
        self.group, self._check = group, check
        self._known: dict[str, T] = {}

    def register(self, name: str, value: T) -> None:
        """Let a value be found.

        Raises:
            SpecError: the name is another's.
        """
        if self._known.get(name, value) is not value:
            raise SpecError("kind", name, f"a name that is free; {self._known[name]} has it")
        self._known[name] = value

    @property
    def known(self) -> dict[str, T]:
        """What is built in or registered."""
        return dict(self._known)

    def names(self) -> list[str]:
        """All names that can be found, without importing what they stand for."""
        return sorted({*self._known, *self._offered})

    def find(self, name: str, path: str = "kind") -> T:
        """What the name stands for.

        Args:
            name: of it, or ``module:name``.
            path: the field whose value it is, for errors.

        Raises:
            SpecError: nothing has that name, or what has it cannot be imported or is something else.
        """
        if name in self._known:
            return self._known[name]
        if name in self._offered:
            return self._imported(name, self._offered[name], path)
        if ":" in name:
            return self._imported(name, EntryPoint(name, name, self.group), path)
        raise SpecError(path, name, one_of(self.names(), name))

    def _imported(self, name: str, entry: EntryPoint, path: str) -> T:
        of = f"; the entry point is {entry.dist.name}'s" if entry.dist else ""
        module, _, attribute = entry.value.partition(":")
        try:
            found: Any = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
            return self._check(found)
        except TypeError as error:
            raise SpecError(path, name, f"{error}{of}") from None
        except Exception as error:  # whatever a foreign module does when it is imported
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(path, name, f"what can be imported from {entry.value} ({told}){of}") from None

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}
