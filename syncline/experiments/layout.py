"""How a table fits a terminal: as it is, else folded at spaces, else cut into blocks that repeat the first columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

EASY_TO_READ = 16
"""Characters below which text is not folded, unless its words are short and few."""

NO_MORE_BESIDE = 30
"""Characters of text that ask for a block of their own when a table is cut: text gets more where there is room."""

BETWEEN_WORDS = re.compile(r"\s+")
BETWEEN_NUMBERS = re.compile(r"\n| (?=[(+])|(?<=,) ")
"""A number stays beside its unit."""


@dataclass(frozen=True)
class Sheet:
    """A table as text, drawn as wide as the terminal allows.

    Args:
        headings: one per column; a line break is where a heading is folded in any case.
        cells: a list per row.
        left: columns that hold text; the others hold numbers.
        ruled: whether a line follows a row.
    """

    headings: Sequence[str]
    cells: Sequence[Sequence[str]]
    left: Collection[int]
    ruled: Sequence[bool]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        every, width = range(len(self.headings)), options.max_width
        if _total(map(self._natural, every), 3) <= width:
            yield self._drawn({column: self._natural(column) for column in every}, roomy=True)
            return
        for columns in self._blocks(width):
            yield self._drawn(self._widths(columns, width))

    def _blocks(self, width: int) -> list[list[int]]:
        """All columns together where they fit folded; else as few blocks as there can be, of about one width."""
        every = range(len(self.headings))
        if _total((max(self._least(column), self._readable(column)) for column in every), 2) <= width:
            return [list(every)]
        key = self._key(width)
        asked = {
            column: max(self._least(column), min(self._natural(column), NO_MORE_BESIDE)) for column in every[len(key) :]
        }
        taken = _total(map(self._least, key), 2)
        fewest = _cut(asked, width - taken)
        for narrower in range(width - taken - 1, 0, -1):
            cut = _cut(asked, narrower)
            if len(cut) > len(fewest):
                break
            fewest = cut
        return [[*key, *block] for block in fewest]

    def _key(self, width: int) -> range:
        """The first columns, as many as tell the rows apart and leave half of the width."""
        for count in range(1, len(self.headings)):
            key = range(count)
            if len({tuple(row[:count]) for row in self.cells}) == len(self.cells):
                return key
            if _total(map(self._least, range(count + 1)), 2) > width // 2:
                return key
        return range(1)

    def _widths(self, columns: list[int], width: int) -> dict[int, int]:
        """Each as wide as it likes, and the widest narrower until all fit: down to words, and only then into them."""
        widths = {column: self._natural(column) for column in columns}
        for least in (self._readable, self._least, lambda column: EASY_TO_READ, lambda column: 1):
            while _total(widths.values(), 2) > width:
                wide = {column: size for column, size in widths.items() if size > least(column)}
                if not wide:
                    break
                widths[max(wide, key=wide.__getitem__)] -= 1
        return widths

    def _drawn(self, widths: dict[int, int], roomy: bool = False) -> Table:
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=not roomy)
        for column, width in widths.items():
            heading = _folded(self.headings[column], width, self._breaks(None), roomy)
            drawn.add_column(
                Text(heading), justify="left" if column in self.left else "right", width=width, no_wrap=True
            )
        for row, ruled in zip(self.cells, self.ruled, strict=True):
            shown = (_folded(row[column], width, self._breaks(column)) for column, width in widths.items())
            drawn.add_row(*map(Text, shown), end_section=ruled)
        return drawn

    def _breaks(self, column: int | None) -> re.Pattern[str]:
        return BETWEEN_WORDS if column is None or column in self.left else BETWEEN_NUMBERS

    def _natural(self, column: int) -> int:
        texts = [self.headings[column], *(row[column] for row in self.cells)]
        return max(cell_len(line) for text in texts for line in text.split("\n"))

    def _least(self, column: int) -> int:
        """What its longest word needs."""
        words = [word for row in self.cells for word in self._breaks(column).split(row[column])]
        return max(map(cell_len, [*words, *BETWEEN_WORDS.split(self.headings[column])]))

    def _readable(self, column: int) -> int:
        natural = self._natural(column)
        return max(self._least(column), min(natural, EASY_TO_READ)) if column in self.left else self._least(column)


def _total(widths: Collection[int] | map[int], gap: int) -> int:
    """With what stands between columns, and a space at both ends."""
    sizes = list(widths)
    return sum(sizes) + gap * (len(sizes) - 1) + 2


def _cut(widths: dict[int, int], room: int) -> list[list[int]]:
    """Neighbours together, as many as there is room for."""
    blocks: list[list[int]] = []
    used = room + 1
    for column, width in widths.items():
        used += width + 2
        if used > room:
            blocks.append([])
            used = width + 2
        blocks[-1].append(column)
    return blocks


def _folded(text: str, width: int, breaks: re.Pattern[str], keep: bool = False) -> str:
    """In lines of at most so many characters, broken where it may be; longer words as often as they must."""
    if keep or all(cell_len(line) <= width for line in text.split("\n")):
        return text
    lines: list[str] = []
    for word in breaks.split(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += chop_cells(word, width) or [""]
    return "\n".join(lines)
