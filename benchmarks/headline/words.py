"""What README and docs/headline.md say below the figure, with its numbers from what is kept."""

# ruff: noqa: E501 - sentences with numbers in them are read in one piece

from __future__ import annotations

import textwrap

from benchmarks.headline.kept import TARGETS, Finals, Row
from benchmarks.headline.sizes import AGAIN, Size, sizes
from benchmarks.headline.tables import first_three, loss, seconds

WIDTH = 120


def words(finals: Finals, longer: Finals) -> str:
    """All of it, in Markdown.

    Args:
        finals: the headline's.
        longer: some of its methods, trained for longer.
    """
    rows = {(row.method, row.network): row for row in finals.rows()}
    of_size = {(one.model, one.method, one.network): one for one in sizes(finals)}
    parts = [_caption(finals), first_three(finals).rstrip()]
    sentences = [_periodic(rows), _same_bytes(rows), _dion(rows), _search(rows), _longer(longer), _size(of_size)]
    parts.append("\n".join(textwrap.fill(f"- {one}", WIDTH, subsequent_indent="  ") for one in sentences))
    return "\n\n".join(parts)


def short_words(finals: Finals) -> str:
    """Return the README's sentences about the figure."""
    rows = {(row.method, row.network): row for row in finals.rows()}
    slow, slow_base = (_to(rows[name, "wan"], target=TARGETS[1]) for name in ("mt-dao", "ddp-adam-untuned"))
    on_fast = {
        name: _to(rows[name, "infiniband"], target=TARGETS[1]) for name in ("mt-dao", "ddp-adam-untuned", "dion")
    }
    first = min(on_fast, key=lambda name: on_fast[name])
    text = (
        f"The picture shows a GPT of {finals.parameters:,} parameters, trained by four workers with "
        f"{len(finals.spec.seeds)} seeds. **The network decides which method is faster.** On the slow network (`wan`), "
        f"MT-DAO, which averages every 32 steps, reaches a loss of {TARGETS[1]:.2f} after {seconds(slow)}, and "
        f"DDP-Adam, with its default settings, after {seconds(slow_base)}. On the fast one (`infiniband`), MT-DAO needs "
        f"{seconds(on_fast['mt-dao'])}, DDP-Adam {seconds(on_fast['ddp-adam-untuned'])}, and {first} is first, after "
        f"{seconds(on_fast[first])}."
    )
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _caption(finals: Finals) -> str:
    parameters = finals.parameters
    seeds = len(finals.spec.seeds)
    text = (
        f"*The figure of `make demo`: a GPT of {parameters:,} parameters on the source of Python's standard library, four "
        f"workers, {finals.spec.steps} steps, medians and ranges of {seeds} seeds. The knobs of eleven methods come from a "
        "search of sixteen trials each, of which the best four were seen at a second seed, all on other seeds and another half "
        f"of the held-out text; DDP-Adam untuned stands beside them. Rings are where "
        f"{', '.join(f'{one:.2f}' for one in TARGETS)} are reached, losses that were fixed before. Who is first, and how many "
        "of twelve get there:*"
    )
    return textwrap.fill(text, WIDTH)


def _to(row: Row, target: float) -> float:
    return row.reached[target].median_s


def _periodic(rows: dict[tuple[str, str], Row]) -> str:
    target = TARGETS[1]
    mine, base = rows["mt-dao", "wan"], rows["ddp-adam", "wan"]
    near, near_base = rows["mt-dao", "infiniband"], rows["ddp-adam", "infiniband"]
    return (
        f"**A slow network reverses the order.** On wan MT-DAO, which averages every 32 steps, reaches a loss of "
        f"{target:.2f} after {seconds(_to(mine, target))}, with {seconds(mine.step_time_s)} for a step. DDP-Adam reaches it "
        f"after {seconds(_to(base, target))}, with {seconds(base.step_time_s)} for a step. On infiniband MT-DAO takes "
        f"{seconds(_to(near, target))} and DDP-Adam {seconds(_to(near_base, target))}."
    )


def _same_bytes(rows: dict[tuple[str, str], Row]) -> str:
    mine, local, diloco, base = (rows[name, "wan"] for name in ("mt-dao", "local-adam", "diloco", "ddp-adam"))
    return (
        f"**MT-DAO and Local Adam send the same bytes in the same calls** and end at {loss(mine)} and {loss(local)}; "
        f"DiLoCo, with a third of the bytes, at {loss(diloco)}; data parallelism, with {base.bytes_per_worker / mine.bytes_per_worker:.0f} times as many, at {loss(base)}."
    )


def _dion(rows: dict[tuple[str, str], Row]) -> str:
    dion, often, base = (rows[name, "wan"] for name in ("dion", "dion-scheduled", "ddp-adam"))
    return (
        f"**Where the network is fast, the optimizer decides**: Dion ends at {loss(dion)}, DDP-Adam at {loss(base)}. What Dion "
        f"gains goes with its averages: in every 32nd step they leave it at {loss(often)}, as CurvaDion's trigger does "
        f"({loss(rows['curvadion', 'wan'])})."
    )


def _search(rows: dict[tuple[str, str], Row]) -> str:
    searched, untuned = rows["ddp-adam", "wan"], rows[AGAIN[0], "wan"]
    return (
        f"**Sixteen trials and two seeds are few.** They left DDP-Adam at {loss(searched)}, where its defaults end at "
        f"{loss(untuned)}. Differences of less than 0.1 between methods say nothing here."
    )


def _size(of_size: dict[tuple[str, str, str], Size]) -> str:
    toy = next(model for model, _, _ in of_size)

    def step(model: str, method: str) -> str:
        return seconds(of_size[model, method, "wan"].step_time_s)

    return (
        "**The toy's size decides much of this.** On wan its calls cost latencies: CurvaDion, which asks for a flag in every "
        f"step, takes {step(toy, 'curvadion')} per step, half of DDP-Adam's {step(toy, 'ddp-adam')}, and a one-bit vote in two calls "
        f"{step(toy, 'lion-cub-1bit')}, more than an 8-bit one's {step(toy, 'lion-cub-8bit')}. With 160M parameters they "
        f"cost bytes: {step('gpt-160m', 'curvadion at 1 %')} for CurvaDion at its paper's rate of averages, the shortest step "
        f"of all, {step('gpt-160m', 'curvadion')} at the rate it had here, {step('gpt-160m', 'lion-cub-1bit')} for one bit, "
        f"{step('gpt-160m', 'lion-cub-8bit')} for eight, {step('gpt-160m', 'ddp-adam')} for DDP-Adam:"
    )


def _longer(longer: Finals) -> str:
    ends = {row.method: f"{row.loss:.3f}" for row in longer.rows()}
    return (
        f"**Five times as long** ({longer.spec.steps:,} steps, one seed, the knobs of the 400 steps) DDP-Adam ends at "
        f"{ends['ddp-adam']}, MT-DAO at {ends['mt-dao']}, DiLoCo at {ends['diloco']}, Local Adam at {ends['local-adam']}."
    )
