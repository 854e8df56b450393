"""Tables of the costs of collectives for people: one per network and collective."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Group

from syncline.costmodel import Network
from syncline.costmodel.collectives.nccl import NVLINK, nvlink_algorithm
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, gpu_nodes
from syncline.costmodel.collectives.volumes import most_messages
from syncline.costmodel.network.places import ring_text
from syncline.planner.collectives import MOST_MESSAGES, CostQuestion, Crossover, choices, crossovers, message_limit
from syncline.planner.tables.display import MORE
from syncline.planner.tables.table import table
from syncline.specs.study import Record
from syncline.units import counted, format_bytes, format_seconds

COLUMNS = "algorithm closed_form_s lockstep_after_s events_after_s bytes_per_worker chosen_by"
SIZE_MEANINGS = {
    "all_gather": "from each worker",
    "gather": "from each worker",
    "reduce_scatter": "into each worker",
    "all_to_all": "in each worker, for all",
}
"""Meaning of the size, for collectives in which it is not simply the tensor's size."""

NOTE = (
    "The same time by three methods. Closed form: equal workers that start together. Lockstep, events: message by "
    "message, from the last start until the last worker has finished."
)
STARTS_NOTE = "Workers start at {}. From the last start until all have finished (lockstep, else events):\n"
MOST_TIMES = 8
"""Number of workers whose times are shown one by one."""

LEFT_OUT = (
    "- of {evaluator}: too many messages to simulate ({algorithm}: {messages:,}, and at most {limit:,} are accepted)."
)
CONTENTION = "- of lockstep: messages meet on a shared link (contention), which only the events can follow."
NO_FORM = "- of the closed form: none is known for this algorithm on this network."


def collectives_tables(rows: list[Record], question: CostQuestion) -> list[Group]:
    """Return tables of the algorithms, with the sizes from which each is fastest; the last table explains the columns.

    Args:
        rows: rows of `compute_costs`: for each network and each collective, one row per algorithm.
    """
    last_start_s = max(question.starts_s or (0.0,))
    tables, begin = [], 0
    for network, kind in itertools.product(question.networks, question.collectives):
        end = begin + len(question.algorithms_of(kind, network))
        shown_rows = [_from_last_start(row, last_start_s) for row in rows[begin:end]]
        begin = end
        if not shown_rows:
            continue
        changes = crossovers(kind, question.workers, network, question.protocol)
        notes = [_fastest_note(changes, shown_rows, network)] if len(shown_rows) > 1 else []
        if not any(row["chosen_by"] for row in shown_rows):  # all policies choose algorithms that the table leaves out
            algorithm_choices = choices(question, kind, network).items()
            notes.append(f"Chosen: {', '.join(f'{name} by {policy}' for policy, name in algorithm_choices)}.")
        if question.starts_s is not None:
            notes.append(_finish_note(shown_rows, question.starts_s))
        if end == len(rows):  # this is the last table
            notes += [NOTE, *_missing_notes(rows, question), MORE.lstrip()]
        title = _title(kind, question, network)
        tables.append(table(title, COLUMNS, shown_rows, note="\n".join(notes), keys=("algorithm",)))
    return tables


def _missing_notes(rows: list[Record], question: CostQuestion) -> list[str]:
    """Return notes on the meaning of each '-' in the table."""
    notes = []
    if any(row["closed_form_s"] is None for row in rows):
        notes.append(NO_FORM)
    if any(row["contention"] for row in rows):
        notes.append(CONTENTION)
    network_by_name = {network.name: network for network in question.networks}
    for evaluator in MOST_MESSAGES:
        for row in rows:
            if row[f"{evaluator}_s"] is not None or (evaluator == "lockstep" and row["contention"]):
                continue
            network, algorithm = network_by_name[row["network"]], row["algorithm"]
            messages = most_messages(row["collective"], algorithm, row["workers"], network, row["nbytes"])
            limit = message_limit(evaluator, network, row["collective"], algorithm)
            notes.append(LEFT_OUT.format(evaluator=evaluator, algorithm=algorithm, messages=messages, limit=limit))
            break  # the note of an evaluator names only its first row with too many messages
    return notes


def _from_last_start(row: Record, last_start_s: float) -> Record:
    """Return the row with times from the last start on, because starts of minutes would hide the collective's time."""
    columns = {"lockstep_after_s": row["lockstep_s"], "events_after_s": row["events_s"]}
    return row | {name: None if end_s is None else end_s - last_start_s for name, end_s in columns.items()}


def _title(kind: str, question: CostQuestion, network: Network) -> str:
    # A name with a comma is the network's description, which follows.
    name = f"{network.name}: " if network.name and "," not in network.name else ""
    size = f"{format_bytes(question.nbytes)} {SIZE_MEANINGS.get(kind, '')}".rstrip()
    protocol = "" if question.protocol == "eager" else f", {question.protocol}"
    return f"{kind}, {size}; {counted(question.workers, 'workers')}{protocol}, {name}{network.describe()}"


def _fastest_note(changes: list[Crossover], rows: list[Record], network: Network) -> str:
    """Return a line with the fastest algorithm and the choices of `auto` by size."""
    workers = rows[0]["workers"]
    for row in rows:
        name = row["algorithm"]
        if "auto" in row["chosen_by"] and name in TIMED_AS_A_WHOLE:  # at every size, so that no sizes follow
            if name == NVLINK:
                nccl_name = nvlink_algorithm(row["collective"], row["nbytes"], gpu_nodes(network, workers))
                name += f" (here NCCL's {nccl_name})"
            return (
                f"'auto' takes {name}, which includes the library's software; the times of messages are of links alone."
            )
    ring = ring_text(network, workers)
    fastest = "".join(f"Fastest: {row['algorithm']}. " for row in rows if row["fastest"])
    if all(row["closed_form_s"] is None for row in rows):
        if ring:
            return f"{fastest}There is no closed form, so 'auto' simulates. Order of the places in a ring: {ring}."
        return f"{fastest}There is no closed form, so 'auto' takes the first."
    if not changes:
        return f"{fastest}At every size 'auto' takes the same."
    parts = [changes[0].below]
    parts += [f"{crossover.above} from {format_bytes(crossover.nbytes)} on" for crossover in changes]
    return f"{fastest}By size 'auto' takes {', then '.join(parts)}."


def _finish_note(rows: list[Record], starts_s: tuple[float, ...]) -> str:
    """Return lines with each algorithm's finish times after the last start, for up to `MOST_TIMES` workers."""
    width, last_start_s = max(len(row["algorithm"]) for row in rows), max(starts_s)
    lines = []
    for row in rows:
        if row["finish_s"]:
            times = _times_text([finish_s - last_start_s for finish_s in row["finish_s"]])
            lines.append(f"  {row['algorithm']:<{width}}  {times}")
    return STARTS_NOTE.format(_times_text(starts_s)) + "\n".join(lines)


def _times_text(seconds: Sequence[float]) -> str:
    """Return the first `MOST_TIMES` times as text, with commas between."""
    texts = [format_seconds(time_s) for time_s in seconds[:MOST_TIMES]]
    return ", ".join([*texts, "..."] if len(seconds) > MOST_TIMES else texts)
