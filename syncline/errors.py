"""Errors in a user's input, each reported in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class SynclineError(Exception):
    """A mistake in the input: one line that names the problem and what would be accepted.

    Long words in the line are shortened, so that its end, which says what is expected, stays visible.
    """

    def __str__(self) -> str:
        return _with_short_words(super().__str__())


class SpecError(SynclineError):
    """A field of a spec has a value that cannot be used.

    Args:
        path: dotted path of the field (``method.rule.lr``).
        value: value of the field.
        expected: values that would be accepted, as the end of the sentence "expected ...".
    """

    def __init__(self, path: str, value: object, expected: str) -> None:
        # The unchanged arguments, so that the error can be pickled and returned from another process.
        super().__init__(path, value, expected)
        self.path, self.value, self.expected = path, value, expected

    def __str__(self) -> str:
        path, value = _beginning(self.path), _beginning(_text(self.value))
        return _with_short_words(f"{path}: got {value}; expected {self.expected}")


called_by_command: ContextVar[bool] = ContextVar("called_by_command", default=False)
"""True while error lines name a command's options (``--out``); else they name a function's parameters (``out``)."""

MOST_SHOWN = 200
"""Largest number of characters of a value, a path or a word in an error line."""

LONG = MOST_SHOWN + 100
"""Number of characters from which a text is cut; a little more than is shown, so that the cut saves space."""

LONG_WORD = re.compile(rf"\S{{{LONG + 1},}}")


def _text(value: object) -> str:
    """Return a value as Python writes it, in one line; or its type if Python cannot write it."""
    try:
        return " ".join(repr(value).split("\n"))
    except Exception:  # any error of a user's own object, or a list that is nested too deep
        return f"<{type(value).__name__}>"


def _beginning(text: str) -> str:
    """Return a text, or only its beginning and its length if it is long."""
    return text if len(text) <= LONG else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"


def _with_short_words(line: str) -> str:
    """Return a line in which long words are cut to their beginnings."""
    return LONG_WORD.sub(lambda word: _beginning(word[0]), line)


@contextmanager
def within(path: str) -> Iterator[None]:
    """Prefix ``path`` to the paths of errors from the block, because a part of a spec does not know its own path.

    >>> with within("methods.0"):
    ...     raise SpecError("bits", 4, "more")
    Traceback (most recent call last):
    syncline.errors.SpecError: methods.0.bits: got 4; expected more
    """
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{path}.{error.path}", error.value, error.expected) from None


MOST_NAMES = 40
"""Number of accepted names that an error line lists in full."""

MOST_CLOSEST = 5
"""Number of names that an error line lists if more are accepted: those closest to the given one."""


def one_of(options: Iterable[str], value: object) -> str:
    """Return the end of an error line that lists the accepted names, and suggests the closest match to ``value``.

    Of more than `MOST_NAMES` names it lists only the closest ones.

    >>> one_of(["infiniband", "10gbe", "wan"], "10gb")
    "one of '10gbe', 'infiniband', 'wan' (did you mean '10gbe'?)"
    """
    names, text = sorted(options), value if isinstance(value, str) else ""
    similar_names = difflib.get_close_matches(text, names, n=1)
    if len(names) > MOST_NAMES:
        closest_names = difflib.get_close_matches(text, names, n=MOST_CLOSEST, cutoff=0.0) or names[:MOST_CLOSEST]
        line = f"one of {len(names)} names, such as " + ", ".join(repr(name) for name in closest_names)
    else:
        line = "one of " + ", ".join(repr(name) for name in names)
    return line + (f" (did you mean {similar_names[0]!r}?)" if similar_names else "")


def require_one_of(path: str, value: object, options: Collection[str]) -> None:
    """Raise ``SpecError`` for a value that is not one of the accepted names.

    >>> require_one_of("overlap", "dpp", ("none", "ddp", "async"))
    Traceback (most recent call last):
    syncline.errors.SpecError: overlap: got 'dpp'; expected one of 'async', 'ddp', 'none' (did you mean 'ddp'?)
    """
    if value not in options:
        raise SpecError(path, value, one_of(options, value))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory is exhausted: a MemoryError, or torch's RuntimeError, which only its message shows."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def named(value: object, options: Mapping[str, T], path: str) -> T:
    """Return the option of a name, which may be in upper or lower case.

    Raises:
        SpecError: an unknown name; the error suggests the closest match.
    """
    if not isinstance(value, str) or value.lower() not in options:
        raise SpecError(path, value, one_of(options, str(value).lower()))
    return options[value.lower()]


def error_text(error: Exception) -> str:
    """Return the type and the message of an error in one line.

    >>> error_text(ValueError("sizes are\\nnot negative"))
    'ValueError: sizes are not negative'
    """
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
