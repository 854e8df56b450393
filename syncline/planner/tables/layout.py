"""The layout of a table in a terminal: unchanged, or folded at spaces, or cut into blocks that repeat key columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

READABLE_WIDTH = 16
"""Characters to which text is folded before a table is cut into blocks."""

BLOCK_WIDTH = 30
"""Characters of text that a column requests when a table is cut into blocks; with more room the column gets more."""

BETWEEN_WORDS = re.compile(r"\s+")
"""Break points of text."""

BETWEEN_NUMBERS = re.compile(r"\n| (?=[(+])|(?<=,) ")
"""Break points that keep a number next to its unit."""


@dataclass(frozen=True)
class Sheet:
    """A table as text, drawn as wide as the terminal allows.

    Args:
        headings: heading of each column; one that is wider than its cells is folded into two lines.
        text_columns: indices of the columns with text, aligned to the left; the other columns have numbers.
        ends_section: for each row, whether a line follows.
    """

    headings: Sequence[str]
    cells: Sequence[Sequence[str]]
    text_columns: Collection[int]
    ends_section: Sequence[bool]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table in the width that the console has."""
        width = options.max_width
        if _total_width(self._natural_widths, gap=3) <= width:
            yield self._draw(dict(enumerate(self._natural_widths)), has_wide_gaps=True)
            return
        for columns in self._blocks(width):
            yield self._draw(self._fitted_widths(columns, width))

    def _blocks(self, width: int) -> list[list[int]]:
        """Return all columns together if they fit folded; otherwise the fewest blocks, of similar width."""
        if _total_width(self._readable_widths, gap=2) <= width:
            return [[*range(len(self.headings))]]
        key_columns = self._key_columns(width)
        full_widths = {
            column: max(self._minimum_widths[column], min(self._natural_widths[column], BLOCK_WIDTH))
            for column in range(len(key_columns), len(self.headings))
        }
        room = width - _total_width((self._minimum_widths[column] for column in key_columns), gap=2)
        blocks = _cut_into_blocks(full_widths, room)
        # Make the blocks as narrow as their number allows, so that all have about the same width.
        for narrower in range(room - 1, 0, -1):
            narrower_blocks = _cut_into_blocks(full_widths, narrower)
            if len(narrower_blocks) > len(blocks):
                break
            blocks = narrower_blocks
        return [[*key_columns, *block] for block in blocks]

    def _key_columns(self, width: int) -> range:
        """Return the fewest first columns that distinguish the rows, or as many as fit into half of the width."""
        for count in range(1, len(self.headings)):
            is_unique = len({tuple(row[:count]) for row in self.cells}) == len(self.cells)
            width_with_next = _total_width(self._minimum_widths[: count + 1], gap=2)
            if is_unique or width_with_next > width // 2:
                return range(count)
        return range(1)  # several rows are equal

    def _fitted_widths(self, columns: list[int], width: int) -> dict[int, int]:
        """Return the width of each column: at first the natural width, then the widest is narrowed until all fit.

        Text is folded between words, and inside words only if this does not suffice.
        """
        widths = {column: self._natural_widths[column] for column in columns}
        # Each round narrows columns down to its least widths, which keep text readable, then numbers with their units
        # whole, then words whole, then one character.
        limits = (self._readable_widths, self._minimum_widths, self._word_widths, [1] * len(self.headings))
        for min_widths in limits:
            while _total_width(widths.values(), gap=2) > width:
                shrinkable = {column: size for column, size in widths.items() if size > min_widths[column]}
                if not shrinkable:
                    break
                widest_column = max(shrinkable, key=lambda column: widths[column])
                widths[widest_column] -= 1
        return widths

    def _draw(self, widths: dict[int, int], has_wide_gaps: bool = False) -> Table:
        """Return the columns with these widths as a table of rich, with gaps of 3 characters or of 2."""
        rich_table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=not has_wide_gaps)
        for column, width in widths.items():
            heading = self.headings[column]
            if cell_len(heading) > width:
                two_lines = "\n".join(_halves(heading)).lstrip("\n")  # the first line of a single word is empty
                heading = two_lines if _line_width(two_lines) <= width else _fold(heading, width, BETWEEN_WORDS)
            justify = "left" if column in self.text_columns else "right"
            rich_table.add_column(Text(heading), justify=justify, width=width, no_wrap=True)  # type: ignore[arg-type]
        for row, ends_section in zip(self.cells, self.ends_section, strict=True):
            texts = [Text(_fold(row[column], width, self._breaks(column))) for column, width in widths.items()]
            rich_table.add_row(*texts, end_section=ends_section)
        return rich_table

    def _breaks(self, column: int) -> re.Pattern[str]:
        """Return the break points of a column's cells."""
        return BETWEEN_WORDS if column in self.text_columns else BETWEEN_NUMBERS

    @cached_property
    def _natural_widths(self) -> list[int]:
        """Return the width of each column's longest line, with the heading in two lines if it has several words."""
        widths = []
        for column, heading in enumerate(self.headings):
            texts = [*_halves(heading), *(row[column] for row in self.cells)]
            widths.append(max(map(_line_width, texts)))
        return widths

    @cached_property
    def _minimum_widths(self) -> list[int]:
        """Return the width of the longest word of each column; a number counts with its unit."""
        return [self._longest_piece(column, self._breaks(column)) for column in range(len(self.headings))]

    @cached_property
    def _word_widths(self) -> list[int]:
        """Return the width of the longest word of each column; a number counts without its unit."""
        return [self._longest_piece(column, BETWEEN_WORDS) for column in range(len(self.headings))]

    @cached_property
    def _readable_widths(self) -> list[int]:
        """Return the least width of each column at which its text is easy to read."""
        widths = list(self._minimum_widths)
        for column in self.text_columns:
            widths[column] = max(widths[column], min(self._natural_widths[column], READABLE_WIDTH))
        return widths

    def _longest_piece(self, column: int, breaks: re.Pattern[str]) -> int:
        """Return the width of the longest piece of a column between break points."""
        pieces = BETWEEN_WORDS.split(self.headings[column])
        for row in self.cells:
            pieces += breaks.split(row[column])
        return max(map(cell_len, pieces))


def _halves(heading: str) -> tuple[str, str]:
    """Split a heading into the two lines that need the least width.

    >>> _halves("time to target"), _halves("micro-batches per second"), _halves("loss")
    (('time to', 'target'), ('micro-batches', 'per second'), ('', 'loss'))
    """
    words = heading.split()
    cuts = [(" ".join(words[:count]), " ".join(words[count:])) for count in range(max(1, len(words)))]
    return min(cuts, key=lambda lines: max(map(cell_len, lines)))


def _line_width(text: str) -> int:
    """Return the width of the longest line of a text."""
    return max(map(cell_len, text.split("\n")))


def _total_width(widths: Iterable[int], gap: int) -> int:
    """Return the total width of columns, with ``gap`` characters between columns, and a space at both ends."""
    sizes = [*widths]
    return sum(sizes) + gap * (len(sizes) - 1) + 2


def _cut_into_blocks(widths: dict[int, int], room: int) -> list[list[int]]:
    """Divide the columns into blocks of neighbours that fit into ``room`` characters, as few as possible."""
    blocks: list[list[int]] = []
    used_width = room + 1  # the first column begins a block
    for column, width in widths.items():
        used_width += width + 2  # with the gap between columns
        if used_width > room:
            blocks.append([])
            used_width = width + 2
        blocks[-1].append(column)
    return blocks


def _fold(text: str, width: int, breaks: re.Pattern[str]) -> str:
    """Fold text into lines of at most a width, at break points, and inside words that are longer."""
    if all(cell_len(line) <= width for line in text.split("\n")):
        return text
    lines: list[str] = []
    for part in breaks.split(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= width:
            lines[-1] += f" {part}"
        elif cell_len(part) <= width:
            lines.append(part)
        elif breaks is BETWEEN_WORDS:  # a single word that is too wide
            lines += chop_cells(part, width)
        else:
            lines += _fold(part, width, BETWEEN_WORDS).split("\n")
    return "\n".join(lines)
