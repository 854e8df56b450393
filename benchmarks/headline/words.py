"""The sentences of README and docs/headline.md about the figure, with numbers from the finals."""

# ruff: noqa: E501 - sentences with numbers in them are read in one piece

from __future__ import annotations

import textwrap
from statistics import median

from benchmarks.headline.finals import TARGETS, Finals
from benchmarks.headline.sizes import AT_PAPERS_RATE, sizes
from benchmarks.headline.tables import first_three, loss, seconds

WIDTH = 120


def words(finals: Finals) -> str:
    """Return the caption, the table and the points of docs/headline.md, in Markdown."""
    points = [_slow_network(finals), _same_bytes(finals), _optimizers(finals), _less_talk(finals), _larger(finals)]
    listed = [textwrap.fill(f"- {point}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) for point in points]
    return "\n\n".join([_caption(finals), first_three(finals).rstrip(), "\n".join(listed)])


def short_words(finals: Finals) -> str:
    """Return the README's sentences about its figure."""
    target = TARGETS[1]

    def time(method: str, network: str) -> str:
        return seconds(finals.median_time_s(method, network, target))

    def end(method: str) -> str:
        return f"{median(finals.last_losses(method)):.2f}"

    first = min(finals.cells, key=lambda method: finals.median_time_s(method, "infiniband", target))
    text = (
        f"The picture shows a GPT of {finals.parameters:,} parameters, trained by four workers with {finals.seeds} seeds. "
        f"**The network decides which method is faster.** On the slow network (`wan`), Local Adam, which averages every 32 "
        f"steps, reaches a loss of {target:.2f} after {time('local-adam', 'wan')}, and DDP-Adam after "
        f"{time('ddp-adam', 'wan')}. On the fast one (`infiniband`), Local Adam needs {time('local-adam', 'infiniband')}, "
        f"DDP-Adam {time('ddp-adam', 'infiniband')}, and `{first}` is first, after {time(first, 'infiniband')}. At the end of "
        f"the training, after equal numbers of steps, DDP-Adam has a loss of {end('ddp-adam')} and Local Adam of {end('local-adam')}."
    )
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _caption(finals: Finals) -> str:
    text = (
        f"*The figure of `make demo`: a GPT of {finals.parameters:,} parameters on the source of Python's standard library, "
        f"four workers, {finals.setting.steps} steps of 8,192 tokens, medians and ranges of {finals.seeds} seeds. Protocol 2 "
        "chose the hyperparameters among 27 trials of each method, on other seeds and another half of the held-out text. "
        f"Rings mark losses of {', '.join(f'{target:.2f}' for target in TARGETS)}, which DDP-Adam with its defaults "
        "reached after a quarter, half and all of its steps, rounded up to 0.05. The table has the first three methods at "
        f"each loss, and how many of {len(finals.cells)} reach it on most seeds:*"
    )
    return textwrap.fill(text, WIDTH)


def _slow_network(finals: Finals) -> str:
    target = TARGETS[1]

    def time(method: str, network: str) -> str:
        return seconds(finals.median_time_s(method, network, target))

    def step(method: str) -> str:
        return seconds(finals.cells[method].step_time_s["wan"])

    return (
        f"**A slow network reverses the order.** On wan Local Adam, which averages every 32 steps, reaches a loss of "
        f"{target:.2f} after {time('local-adam', 'wan')}, with {step('local-adam')} for a step. DDP-Adam reaches it after "
        f"{time('ddp-adam', 'wan')}, with {step('ddp-adam')} for a step. On infiniband Local Adam takes "
        f"{time('local-adam', 'infiniband')} and DDP-Adam {time('ddp-adam', 'infiniband')}."
    )


def _same_bytes(finals: Finals) -> str:
    sent = {method: finals.cells[method].bytes_per_worker for method in ("local-adam", "ddp-adam")}
    end = {method: loss(finals.last_losses(method)) for method in ("mt-dao", "local-adam", "diloco", "ddp-adam")}
    return (
        f"**MT-DAO and Local Adam send the same bytes in the same calls** and end at {end['mt-dao']} and "
        f"{end['local-adam']}; DiLoCo, with a third of the bytes, at {end['diloco']}; data parallelism, with "
        f"{sent['ddp-adam'] / sent['local-adam']:.0f} times as many, at {end['ddp-adam']}."
    )


def _optimizers(finals: Finals) -> str:
    end = {method: loss(finals.last_losses(method)) for method in ("dion", "ddp-adam", "dion-scheduled", "curvadion")}
    return (
        f"**Where the network is fast, the optimizer decides**: Dion ends at {end['dion']}, DDP-Adam at {end['ddp-adam']}. "
        f"With fewer averages Dion loses this gain: with one in 32 steps it ends at {end['dion-scheduled']}, with those of "
        f"CurvaDion's trigger at {end['curvadion']}."
    )


def _less_talk(finals: Finals) -> str:
    end = {method: loss(finals.last_losses(method)) for method in ("demo", "demo-muon", "zero-one-adam")}
    sent = {method: cell.bytes_per_worker for method, cell in finals.cells.items()}

    def times_fewer(method: str) -> str:
        return f"{sent['ddp-adam'] / sent[method]:.0f} times fewer bytes"

    return (
        f"**Except Dion, no method that sends less ends near data parallelism.** DeMo over Muon, with {times_fewer('demo-muon')}, "
        f"ends at {end['demo-muon']}, over signs at {end['demo']}; 0/1 Adam, with {times_fewer('zero-one-adam')}, at "
        f"{end['zero-one-adam']}."
    )


def _larger(finals: Finals) -> str:
    step_s = {(size.model, size.method): size.step_time_s for size in sizes(finals) if size.network == "wan"}
    small_model = next(model for model, _ in step_s)

    def step(method: str, model: str = "gpt-160m") -> str:
        return seconds(step_s[model, method])

    return (
        "**The size of the model decides much of this.** On wan, latency decides the steps of the small model: CurvaDion, "
        f"whose trigger needs a collective in every step, takes {step('curvadion', small_model)} per step, DDP-Adam "
        f"{step('ddp-adam', small_model)}, and a one-bit vote, of two calls, {step('lion-cub-1bit', small_model)}, more than "
        f"an 8-bit vote with {step('lion-cub-8bit', small_model)}. With 160M parameters the number of bytes decides: "
        f"{step(AT_PAPERS_RATE)} for CurvaDion at its paper's rate of averages, {step('curvadion')} at the rate it had here, {step('dion-scheduled')} "
        f"for Dion with one average in 32 steps, {step('lion-cub-1bit')} for one bit, {step('lion-cub-8bit')} for eight, "
        f"{step('ddp-adam')} for DDP-Adam:"
    )
