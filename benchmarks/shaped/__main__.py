"""Real TCP between network namespaces on one machine, over lines of a known rate and delay.

    python -m benchmarks.shaped check
    python -m benchmarks.shaped measure --hosts 2,4 --rate 100Mbit/s,1Gbit/s --delay 5ms [--out results/shaped.json]
    python -m benchmarks.shaped run --hosts 4 --rate 100Mbit/s --delay 5ms -- COMMAND...
    python -m benchmarks.shaped fit results/shaped.json --at 1Gbit/s,1ms
    python -m benchmarks.shaped validate validate-compute --hosts 2,4 --costs results/shaped.json --at 1Gbit/s,1ms
    python -m benchmarks.shaped trace --at 1Gbit/s,1ms --costs results/shaped.json --lines 100Mbit/s,10ms 1Gbit/s,5ms
    python -m benchmarks.shaped clean

`check` says whether this machine can, and what it lacks. `measure` times gloo's collectives from a common start, at
every combination of hosts, rate and delay. `run` runs a command on every host with RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT set, and reports what the devices counted. `fit` learns the software's costs from measurements at one
setting and predicts others. `validate` predicts trainings with such costs, then runs them on every network that the
specs name, as `syncline validate` does on one machine's loopback. `trace` records unmodified scripts, replays the
records on lines, and measures the scripts there. `clean` removes what a killed run has left. Exit code 77: skipped,
with the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.shaped.learned import errors_of, learn, rows_of
from benchmarks.shaped.measure import COLLECTIVES, SIZES, measure, versions, write
from benchmarks.shaped.network import (
    HOSTS,
    PRIORITIES,
    Network,
    Unavailable,
    interruptible,
    missing,
    run_on_hosts,
    sweep,
)
from syncline.costmodel.network.software_costs import GLOO
from syncline.errors import SpecError
from syncline.units import format_bandwidth, format_bytes, format_seconds, parse_bandwidth, parse_bytes, parse_seconds

SKIPPED = 77


def parser() -> argparse.ArgumentParser:
    of = argparse.ArgumentParser(
        prog="python -m benchmarks.shaped", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = of.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="whether this machine can, and what it lacks")
    commands.add_parser("clean", help="remove what a killed run has left")
    fit = commands.add_parser("fit", help="learn the software's costs at one setting, predict others")
    fit.add_argument("files", type=Path, nargs="+", help="what `measure --out` has written, .json")
    fit.add_argument("--at", required=True, metavar="RATE,DELAY", help="the setting that is learned from")
    fit.add_argument("--page", type=Path, metavar="FILE", help="write all of it there, .md, with a picture beside")
    trainings = commands.add_parser("validate", help="predict trainings, then run them")
    trainings.add_argument("specs", nargs="+", metavar="SPEC", help="of kind run or compare; networks are links")
    trainings.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="override a field")
    trainings.add_argument("--hosts", default="4", help="2 to 16, or several with commas between")
    trainings.add_argument(
        "--costs", type=Path, nargs="+", required=True, help="what `measure --out` has written, .json"
    )
    trainings.add_argument("--at", required=True, metavar="RATE,DELAY", help="the setting that costs are learned from")
    trainings.add_argument("--repeats", type=int, default=5, help="trainings of each that count")
    trainings.add_argument("--out", type=Path, required=True, help="the folder to write")
    trainings.add_argument("--page", type=Path, metavar="FILE", help="a page of it, .md, with a picture beside")
    scripts = commands.add_parser("trace", help="replay the records of scripts, then run the scripts")
    scripts.add_argument("--lines", nargs="+", required=True, metavar="RATE,DELAY", help="on which they run")
    scripts.add_argument("--scripts", type=Path, nargs="+", metavar="FILE", help="all of benchmarks/shaped/scripts")
    scripts.add_argument("--costs", type=Path, nargs="+", required=True, help="what `measure --out` has written, .json")
    scripts.add_argument("--at", required=True, metavar="RATE,DELAY", help="the setting that costs are learned from")
    scripts.add_argument("--repeats", type=int, default=3, help="runs of each")
    scripts.add_argument("--out", type=Path, help="a .json or .csv")
    scripts.add_argument("--page", type=Path, metavar="FILE", help="a page of it, .md, with a picture beside")
    for name, text in (("measure", "time gloo's collectives"), ("run", "run a command on every host")):
        sub = commands.add_parser(name, help=text)
        several = ", or several with commas between" if name == "measure" else ""
        sub.add_argument("--hosts", default="4", help=f"2 to 16{several}")
        sub.add_argument("--rate", default="100Mbit/s", help=f"of each host's line, out and in{several}")
        sub.add_argument("--delay", default="5ms", help=f"one way{several}")
        sub.add_argument("--priority", choices=list(PRIORITIES), default="rr" if name == "measure" else "none")
        sub.add_argument("--timeout", default="15min" if name == "measure" else "60min", help="of a setting")
        if name == "measure":
            sub.add_argument("--collectives", default=",".join(COLLECTIVES), help="with commas between; also send")
            sub.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, with commas between")
            sub.add_argument("--budget", default="1s", help="per collective and size")
            sub.add_argument("--longest", default="6s", help="of one repetition")
            sub.add_argument("--out", type=Path, help="a .json or .csv")
        else:
            sub.add_argument("--whole-segments", action="store_true", help="devices that count every segment")
            sub.add_argument("--json", type=Path, help="where the counters go")
            sub.add_argument("words", nargs="+", metavar="COMMAND", help="after --")
    return of


def _hosts(text: str) -> int:
    if not (text.isdigit() and 2 <= int(text) <= HOSTS):
        raise SpecError("--hosts", text, f"a number from 2 to {HOSTS}")
    return int(text)


def measured(options: argparse.Namespace) -> int:
    sizes = [int(parse_bytes(float(size) if size.isdigit() else size, "--sizes")) for size in options.sizes.split(",")]
    settings = [
        (_hosts(hosts), parse_bandwidth(rate, "--rate"), parse_seconds(delay, "--delay"))
        for rate in options.rate.split(",")
        for delay in options.delay.split(",")
        for hosts in options.hosts.split(",")
    ]
    rows = []
    for hosts, bytes_per_s, delay_s in settings:
        print(f"{hosts} hosts, {format_bandwidth(bytes_per_s)}, {format_seconds(delay_s)} one way", flush=True)
        found = measure(
            hosts,
            bytes_per_s,
            delay_s,
            options.collectives.split(","),
            sizes,
            budget_s=parse_seconds(options.budget, "--budget"),
            longest_s=parse_seconds(options.longest, "--longest"),
            timeout_s=parse_seconds(options.timeout, "--timeout"),
            priority=options.priority,
        )
        show(found)
        rows += found
        if options.out:  # after every setting, so that what was measured stays if one fails
            write(rows, options.out, _command())
    return 0


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'collective':15}{'bytes':>10}{'median':>12}{'min':>12}{'spread':>8}{'gloo form':>12}{'error':>8}")
    for row in rows:
        print(
            f"{row['collective']:15}{row['nbytes']:>10}{1e3 * row['median_s']:>9.2f} ms{1e3 * row['min_s']:>9.2f} ms"
            f"{100 * row['spread']:>7.1f}%{1e3 * row['model_s']:>9.2f} ms{100 * row['error']:>7.1f}%"
        )


def ran(options: argparse.Namespace) -> int:
    rate, delay_s = parse_bandwidth(options.rate, "--rate"), parse_seconds(options.delay, "--delay")
    with Network(_hosts(options.hosts), rate, delay_s, options.whole_segments) as network:
        before, wire_before = network.traffic(), network.wire()
        codes = run_on_hosts(network, options.words, options.priority, parse_seconds(options.timeout, "--timeout"))
        after, wire = network.traffic(), network.wire()
    hosts = [
        {name: getattr(b, name) - getattr(a, name) for name in a._fields} | {"host": host, "exit": codes[host]}
        for host, (a, b) in enumerate(zip(before, after, strict=True))
    ]
    for host in hosts:
        print(
            f"host {host['host']}: exit {host['exit']}, sent {format_bytes(host['sent_bytes'])} in "
            f"{host['sent_packets']:,} packets, received {format_bytes(host['received_bytes'])} in "
            f"{host['received_packets']:,}",
            file=sys.stderr,
        )
    print(f"packets were handed over {format_seconds(wire.late_mean_s)} late, {wire.lost} lost", file=sys.stderr)
    if options.json:
        about = {"hosts": len(hosts), "bytes_per_s": rate, "delay_s": delay_s, "command": options.words}
        tables = {
            name: (getattr(wire, name) - getattr(wire_before, name)).tolist() for name in ("packets", "wire", "payload")
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**about, "traffic": hosts, **tables}, indent=1) + "\n")
    return next((code if code > 0 else 1 for code in codes if code), 0)


def validated(options: argparse.Namespace) -> int:
    lacks = missing()
    if lacks:
        raise Unavailable(lacks)
    # Here, so that `run`, which needs none of it, starts at once.
    from rich.console import Console

    from benchmarks.shaped import report
    from benchmarks.shaped.hosts import ShapedHosts
    from syncline.measure.validation.processes import Question, validate_processes
    from syncline.measure.validation.tables import validation_tables
    from syncline.specs import CompareSpec, RunSpec, load_spec

    workers = tuple(_hosts(hosts) for hosts in options.hosts.split(","))
    loaded = tuple(load_spec(spec, options.set, RunSpec, CompareSpec) for spec in options.specs)
    costs = learn(_split([row for file in options.costs for row in rows_of(file)], options.at)[0])
    question = Question(loaded, workers, options.repeats)  # type: ignore[arg-type]
    result = validate_processes(question, ShapedHosts(costs), options.out, exact=True)
    for table in validation_tables(result):
        Console(width=140).print(table)
    print(f"results in {result['folder']}/", file=sys.stderr)
    if options.page:
        report.trainings(Path(result["folder"]), _command(), versions(), options.page)
    return 0


def scripts_traced(options: argparse.Namespace) -> int:
    lacks = missing()
    if lacks:
        raise Unavailable(lacks)
    from benchmarks.shaped import traced

    lines = []
    for given in options.lines:
        rate, _, delay = given.partition(",")
        lines.append((parse_bandwidth(rate, "--lines"), parse_seconds(delay, "--lines")))
    learned = _split([row for file in options.costs for row in rows_of(file)], options.at)[0]
    rows = traced.validate(options.scripts or traced.SCRIPTS, lines, learn(learned), options.repeats)
    if options.out:
        write(rows, options.out, _command())
    if options.page:
        rate, _, delay = options.at.partition(",")
        costs = f"What gloo's software takes is from {len(learned)} collectives at {rate} and {delay} alone."
        traced.page_of(rows, _command(), versions(), costs, options.page)
    return 0


def _command() -> str:
    return f"python -m benchmarks.shaped {' '.join(sys.argv[1:])}"


def _split(rows: list[dict[str, Any]], at: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a setting of rate and delay, and the others."""
    rate, _, delay = at.partition(",")
    setting = parse_bandwidth(rate, "--at"), parse_seconds(delay, "--at")
    learned = [row for row in rows if (row["bytes_per_s"], row["delay_s"]) == setting]
    return learned, [row for row in rows if row not in learned]


def fitted(options: argparse.Namespace) -> int:
    learned, rows = _split([row for file in options.files for row in rows_of(file)], options.at)
    costs = learn(learned)
    print(f"per message {format_seconds(costs.message_s)}")
    for workers, seconds in costs.call_s:
        print(f"per call among {workers} {format_seconds(seconds)}, whichever collective")
    for kind, of in costs.call_of_s:
        times = ", ".join(f"{format_seconds(seconds)} among {workers}" for workers, seconds in of)
        print(f"per call of {kind} {times}")
    for kind, seconds in costs.byte_s:
        print(f"per byte of {kind} {1e9 * seconds:.3f} ns")
    if rows:
        print(f"{'collective':15}{'points':>7}{'median':>9}{'90%':>8}{'worst':>8}{'spread':>8}")
    for of in errors_of(rows, costs):
        parts = "".join(f"{100 * value:>7.2f}%" for value in (of.median, of.ninth, of.worst, of.spread))
        print(f"{of.collective:15}{of.points:>7} {parts}")
    if options.page and rows:
        from benchmarks.shaped import report

        kept = [[row for row in of if row["collective"] in GLOO] for of in (learned, rows)]
        report.collectives([json.loads(file.read_text()) for file in options.files], *kept, costs, options.page)
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "clean":
        print(f"{len(sweep())} namespaces removed")
        return 0
    if options.command == "check":
        lacks = missing()
        print(lacks or "shaped links work here")
        return SKIPPED if lacks else 0
    try:
        with interruptible():
            do = {"measure": measured, "run": ran, "fit": fitted, "validate": validated, "trace": scripts_traced}
            return do[options.command](options)
    except Unavailable as error:
        print(f"skipped: {error}", file=sys.stderr)
        return SKIPPED
    except (SpecError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
