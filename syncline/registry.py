"""Things by name, from anywhere: built in, registered, of installed packages; loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from syncline.errors import SynclineError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Things by name, in the order: built in, registered, of installed packages.

    Args:
        kind: what they must be.
        group: the entry points that packages add theirs by, as in ``syncline.studies``.
        built_in: where those of Syncline are, ``module:NAME``.
    """

    def __init__(self, kind: type[T], group: str, built_in: Mapping[str, str]) -> None:
        self._kind, self._group, self._places = kind, group, dict(built_in)
        self._loaded: dict[str, T] = {}

    def register(self, name: str, thing: T) -> None:
        """Add one, for as long as this process lives.

        Raises:
            SynclineError: another one has this name.
        """
        if name in self:
            raise SynclineError(f"{self._group}: {name!r} is there already")
        self._loaded[name] = thing

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._places, *self._loaded, *self._entries]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        # Packages are only searched for what is not there without them.
        return name in self._places or name in self._loaded or name in self._entries

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {entry.name: entry for entry in entry_points(group=self._group) if entry.name not in self._places}

    def _load(self, name: str) -> T:
        if name in self._places:
            thing = resolve_name(self._places[name])
        else:
            entry = self._entries[name]
            try:
                thing = entry.load()
            except (ImportError, AttributeError) as error:
                raise SynclineError(f"{self._group}: {name!r} cannot be loaded from {entry.value}: {error}") from None
        if not isinstance(thing, self._kind):
            raise SynclineError(f"{self._group}: {name!r} is no {self._kind.__name__}, but {thing!r}")
        return thing


def deferred(place: str) -> Callable[..., Any]:
    """The function at ``module:name``, which is loaded when it is called first."""

    def call(*arguments: Any) -> Any:
        return resolve_name(place)(*arguments)

    return call
