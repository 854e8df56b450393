"""Commands that replay: the user's scripts on other networks, and published numbers next to Syncline's."""

from __future__ import annotations

import shlex

from syncline.api.functions import answer
from syncline.api.result import Result
from syncline.cli.application import Missing
from syncline.cli.shell import emit, new_console, print_json_or_tables, say, show_files
from syncline.questions.catalogue import Reproduce
from syncline.questions.scripts import Chakra, Trace, Whatif


def print_reproduce(question: Reproduce) -> None:
    """Print published numbers of papers next to Syncline's, and draw a summary of each paper if ``--plot`` is given."""
    from syncline.checkout import import_replication

    figures = import_replication("summaries").save_summaries(question.plot, question.paper) if question.plot else []
    print_replays(question)
    if not question.json:
        for file in figures:
            say(f"figure in {file}")


def print_trace(question: Trace) -> None:
    """Record and replay the scripts of ``syncline trace``, print the result, and suggest ``syncline whatif``."""
    if bool(question.script) == bool(question.scripts):  # exactly one of the two forms is needed
        raise Missing("script", "one script after --, or --script with a command line, once for each script")
    if not all(text.strip() for text in question.scripts or ()):
        raise Missing("--script", "a file, or -m and a module's name; its arguments")
    result = print_replays(question)
    if not question.json:
        say(f"on other networks, and what decides: syncline whatif {shlex.quote(str(result.folder))} --network NET")


def print_replays(question: Reproduce | Trace | Whatif) -> Result:
    """Answer a question, print the result as JSON, or as tables and the paths of its files, and return it."""
    result: Result = answer(question)
    print_json_or_tables(question, result, lambda: result.tables)
    if result.folder is not None and not question.json:
        show_files(new_console(), result.folder)
    return result


print_whatif = print_replays


def print_chakra(question: Chakra) -> None:
    """Convert a recorded trace to Chakra execution traces, or back, and print the path of the new folder."""
    from syncline.measure.replaying.chakra.folders import convert

    rows, folder, summary = convert(question)
    if question.json:
        emit({"rows": rows, "folder": str(folder)})
    else:
        say(summary)
