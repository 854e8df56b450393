"""Printing of traces of foreign scripts, of their replays, and their conversion."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.cli.shell import emit, in_folder, new_console, print_tables, say, show_files
from syncline.cli.usage import Missing
from syncline.errors import SpecError, one_of
from syncline.units import format_bytes

if TYPE_CHECKING:
    from syncline.api.result import Result
    from syncline.questions.chakra import Chakra
    from syncline.questions.trace import Trace
    from syncline.questions.whatif import Whatif


def print_trace(question: Trace) -> None:
    """Print the traces of scripts, and write them into a folder."""
    from syncline.api.traces import answer_trace, folder_name
    from syncline.measure.recording.ranks import script_of
    from syncline.measure.recording.shapes import parse_ranks, trace_by_shapes

    programs = [script_of(words) for words in _scripts(question.script, question.scripts)]
    if question.ranks is not None and not question.shapes:
        expected = "--shapes beside it, as with real math all ranks are recorded"
        raise SpecError("--ranks", question.ranks, expected)
    shaping = partial(trace_by_shapes, ranks=parse_ranks(question.ranks)) if question.shapes else None
    result = answer_trace(in_folder(question, folder_name(programs)), programs, shaping)
    _show(result, question.json)
    if not question.json:
        say(f"on other networks, and what decides: syncline whatif {shlex.quote(str(result.folder))} --network NET")


def _scripts(script: Sequence[str] | None, several: Sequence[str] | None) -> list[list[str]]:
    """Return the words of each script."""
    if bool(script) == bool(several):
        raise Missing("script", "one script behind --, or --script with what one types, once for each")
    try:
        words = [shlex.split(text) for text in several or ()]
    except ValueError as error:
        raise SpecError("--script", several, f"words as one types them ({error})") from None
    if several and not all(words):
        raise Missing("--script", "a file, or -m and a module's name; its arguments")
    return words or [list(script or ())]


def print_whatif(question: Whatif) -> None:
    """Print the replays of records."""
    from syncline.api.traces import answer_whatif

    _show(answer_whatif(question), question.json)


def print_chakra(question: Chakra) -> None:
    """Convert a record to execution traces, or back, and print where they are."""
    from syncline.measure.replaying.chakra.folders import export_record, import_chakra
    from syncline.questions.chakra import ACTIONS

    if question.action not in ACTIONS:
        raise SpecError("action", question.action, one_of(ACTIONS, question.action))
    exact = question.out is not None
    if question.action == "export":
        target = Path(question.out or f"runs/{question.source.resolve().name}-chakra")
        rows, folder = export_record(question.source, question.hardware, question.host, target, exact=exact)
        summary = f"{len(rows)} ranks, {format_bytes(sum(row['bytes'] for row in rows))} in {folder}/"
    else:
        target = Path(question.out or f"runs/{question.source.resolve().name}-record")
        rows, folder = import_chakra(question.source, target, exact=exact)
        summary = f"record in {folder}/; on networks: syncline whatif {folder} --hardware measured --network NET"
    if question.json:
        emit({"rows": rows, "folder": str(folder)})
    else:
        say(summary)


def _show(result: Result, as_json: bool) -> None:
    """Print the JSON object, or tables and the paths of files."""
    if as_json:
        emit(result)
        return
    console: Any = new_console()
    print_tables(console, result)
    if result.folder is not None:
        show_files(console, result.folder)
