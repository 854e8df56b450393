"""What an installed wheel has to do, without the checkout and its tests: ``python smoke.py`` in an empty folder.

``--first``: the first commands alone, which answer at once. Each is run as a user runs it.
Needs the package alone, no pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TINY = ["--set", "steps=4", "--set", "seeds=[0]", "--jobs", "1"]
FIRST = 3
COMMANDS = [
    ["list", "methods"],
    ["project", "--workers", "16", "--network", "wan"],
    ["run", "rosenbrock-local-adam", "--set", "steps=8", "--set", "seeds=[0]", "--out", "run"],
    ["show", "run"],
    ["doctor"],
    ["collectives"],
    ["project", "--network", "wan", "--plot", "speedup.png"],
    ["advise", "--model", "gpt-160m", "--network", "two-sites", "--hardware", "h100", "--workers", "4"],
    ["solve", "bandwidth", "--step-time", "1s", "--method", "diloco", "--network", "wan"],
    ["loss", "1.3B"],
    ["pipeline", "--out", "pipeline"],
    ["compare", "digits-skewed", *TINY, "--out", "compared"],
    ["report", "compared"],
]
EVIDENCE = [["reproduce", "demo"], ["replicate", "mt-dao"], ["replicate", "--list"], ["run", "staleness-text"]]
"""Commands that need the checkout."""


def said(*command: str) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def refused(*command: str) -> str:
    """The line with which a command that has to fail says what is missing."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = done.stderr.strip()
    if done.returncode != 2 or done.stdout or "\n" in line or "checkout of the repository" not in line:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return line


def main() -> None:
    """Run every command, and the package from Python."""
    program = str(Path(sys.executable).with_name("syncline"))
    where = said(sys.executable, "-c", "import syncline; print(syncline.__file__)").strip()
    assert Path(where).is_relative_to(Path(sys.prefix)), f"this is not what was installed: {where}"
    version = said(program, "--version").strip()
    assert "commit" in version, version
    assert not Path(where).parents[1].joinpath("replication").exists(), "the wheel has the papers' evidence"
    for command in EVIDENCE:
        print(f"refused: syncline {' '.join(command)}: {refused(program, *command)}", flush=True)
    first = "--first" in sys.argv[1:]
    for command in COMMANDS[:FIRST] if first else COMMANDS:
        said(program, *command)
        print(f"works: syncline {' '.join(command)}", flush=True)
    if first:
        return
    rows = json.loads(said(program, "project", "--json"))["rows"]
    assert rows and all(row["step_time_s"] > 0 for row in rows)
    said(sys.executable, "-c", "import syncline as sl; assert len(sl.project().rows); sl.load('run').plot()")
    print(f"syncline {version} works from {where}")


if __name__ == "__main__":
    main()
