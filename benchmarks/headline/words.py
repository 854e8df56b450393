"""What the README says below the figure, with its numbers from what is kept."""

# ruff: noqa: E501 - sentences with numbers in them are read in one piece

from __future__ import annotations

import textwrap

from benchmarks.headline.kept import TARGETS, Finals, Row
from benchmarks.headline.sizes import AGAIN, Size, sizes
from benchmarks.headline.tables import first_three, seconds

UNTUNED, BY_HAND = AGAIN
WIDTH = 120


def words(finals: Finals) -> str:
    """All of it, in Markdown."""
    rows = {(row.method, row.network): row for row in finals.rows()}
    of_size = {(one.model, one.method, one.network): one for one in sizes(finals)}
    parts = [_caption(finals), first_three(finals).rstrip()]
    sentences = [_periodic(rows), _same_bytes(rows), _search(rows), _size(of_size)]
    parts.append("\n".join(textwrap.fill(f"- {one}", WIDTH, subsequent_indent="  ") for one in sentences))
    return "\n\n".join(parts)


def _caption(finals: Finals) -> str:
    parameters = sum(finals.trained["ddp-adam"].elements)
    seeds = len(finals.spec.seeds)
    text = (
        f"*The figure of `make demo`: a GPT of {parameters:,} parameters on the source of Python's standard library, four "
        f"workers, {finals.spec.steps} steps, medians and ranges of {seeds} seeds. The knobs of eleven methods come from a "
        "search of twelve trials each, on another seed and another half of the held-out text; DDP-Adam untuned and Local "
        f"Adam by hand stand beside them. Rings are where {', '.join(f'{one:.2f}' for one in TARGETS)} are reached, losses "
        "that were fixed before. Who is first, and how many of thirteen get there:*"
    )
    return textwrap.fill(text, WIDTH)


def _to(row: Row, target: float) -> float:
    return row.reached[target].median_s


def _periodic(rows: dict[tuple[str, str], Row]) -> str:
    target = TARGETS[0]
    mine, base = rows["mt-dao", "wan"], rows[UNTUNED, "wan"]
    near, near_base = rows["mt-dao", "infiniband"], rows[UNTUNED, "infiniband"]
    return (
        f"**A slow network turns the order round.** A step of DDP-Adam takes {seconds(base.step_time_s)} on wan and one of "
        f"MT-DAO, which averages every 32 steps, {seconds(mine.step_time_s)}: it is at {target:.2f} after "
        f"{seconds(_to(mine, target))} where DDP-Adam, untuned, takes {seconds(_to(base, target))}. On infiniband these are "
        f"{seconds(_to(near, target))} and {seconds(_to(near_base, target))}. No method that averages every 32 steps gets to "
        f"{TARGETS[2]:.2f} in 400 steps."
    )


def _same_bytes(rows: dict[tuple[str, str], Row]) -> str:
    mine, searched, by_hand, diloco = (rows[name, "wan"] for name in ("mt-dao", "local-adam", BY_HAND, "diloco"))
    return (
        f"**Most of MT-DAO's lead over Local Adam is the search's.** They send the same bytes in the same calls. Searched, they end at "
        f"{mine.loss:.3f} and {searched.loss:.3f}; Local Adam with MT-DAO's rate and a β₁ of 0.8, by hand, at "
        f"{by_hand.loss:.3f}. DiLoCo, with a third of the bytes and its outer step searched, too, ends at {diloco.loss:.3f}."
    )


def _search(rows: dict[tuple[str, str], Row]) -> str:
    searched, untuned = rows["ddp-adam", "wan"], rows[UNTUNED, "wan"]
    return (
        f"**Twelve trials at one seed are few.** They left DDP-Adam at {searched.loss:.3f} ({searched.loss_min:.3f} to "
        f"{searched.loss_max:.3f}), where its defaults end at {untuned.loss:.3f} ({untuned.loss_min:.3f} to "
        f"{untuned.loss_max:.3f}). Differences of less than 0.1 between methods say nothing here."
    )


def _size(of_size: dict[tuple[str, str, str], Size]) -> str:
    toy = next(model for model, _, _ in of_size)

    def step(model: str, method: str) -> str:
        return seconds(of_size[model, method, "wan"].step_time_s)

    return (
        "**The toy's size decides much of this.** On wan its calls cost latencies: CurvaDion, which asks for a flag in every "
        f"step, takes {step(toy, 'curvadion')} per step, nearly DDP-Adam's {step(toy, 'ddp-adam')}, and a one-bit vote in two "
        f"calls {step(toy, 'lion-cub-1bit')}, more than an 8-bit one's {step(toy, 'lion-cub-8bit')}. With 160M parameters they "
        f"cost bytes: {step('gpt-160m', 'curvadion at 1 %')} for CurvaDion at its paper's rate of averages, the shortest step "
        f"of all, {step('gpt-160m', 'curvadion')} at the rate it had here, {step('gpt-160m', 'lion-cub-1bit')} for one bit, "
        f"{step('gpt-160m', 'lion-cub-8bit')} for eight, {step('gpt-160m', 'ddp-adam')} for DDP-Adam:"
    )
