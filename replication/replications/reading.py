"""Reading of a replication's folder: nothing is trained, and nothing is written."""

from __future__ import annotations

import shlex
from pathlib import Path

from replication.claims import PAPERS, claims_of
from replication.replications.choosing import check_effort, chosen_trials
from replication.replications.networks import NETWORKS_TABLE
from replication.replications.replicated import EMPTY_STAGE, Replicated
from replication.replications.spec import ReplicationSpec, load_replication
from replication.replications.stage_tables import stage_in, stage_table
from syncline import SpecError
from syncline.errors import one_of
from syncline.files import parse_yaml, refuse_changed_files
from syncline.runs.folders.run_index import is_replication
from syncline.runs.sweep.grid import seeds_of

PAGE = "README.md"


def command_in(folder: Path) -> str:
    """Return the command that made a replication, from its page.

    Raises:
        SpecError: the page has no command.
    """
    with refuse_changed_files(folder):
        lines = (folder / PAGE).read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("    syncline replicate "):
            return line.strip()
    raise SpecError("folder", str(folder), f"a replication's, whose {PAGE} says which command made it")


def read_replication(folder: Path) -> Replicated:
    """Return a replication with the completed stages of its folder, by the spec that its command names.

    Raises:
        SynclineError: the folder is no replication, or was changed after it was written; or the spec no longer exists.
    """
    if not is_replication(folder):
        raise SpecError("folder", str(folder), "a replication's, as 'syncline replicate' writes it")
    words = shlex.split(command_in(folder))[2:]
    options = dict(zip(words[1::2], words[2::2], strict=False))
    seeds = options.get("--seeds")
    spec = load_replication(words[0], options.get("--scale"), seeds_of(None if seeds is None else parse_yaml(seeds)))
    result = Replicated(spec, folder, spec.num_trainings_by_stage())
    with refuse_changed_files(folder):
        for name in list(result.planned):
            path = stage_table(folder, name)
            if path.is_file():
                result.keep(name, stage_in(path)[1])
        trials, repeated = result.kept.get("search"), result.kept.get("rerun") if spec.rerun else EMPTY_STAGE
        if trials is not None:
            result.effort = check_effort(spec, trials.rows)
        if trials is not None and repeated is not None:
            result.chosen = chosen_trials(spec, trials.rows, repeated.rows)
        networks = folder / NETWORKS_TABLE
        result.networks = list(stage_in(networks)[1].rows) if networks.is_file() else []
        result.judge()
    return result


def claim_texts(spec: ReplicationSpec) -> dict[str, str]:
    """Return the texts of a paper's claims by their ids; of a spec without a paper, those of its claims with an id.

    Raises:
        SpecError: the register has no such paper or claim.
    """
    if not spec.paper:
        named = {claim.claim for claim in spec.claims}
        return {claim.id: claim.claim for claim in claims_of() if claim.id in named}
    if spec.paper not in PAPERS:
        raise SpecError("paper", spec.paper, one_of(PAPERS, spec.paper))
    claims = {claim.id: claim.claim for claim in claims_of(spec.paper) if claim.id}
    for i, comparison in enumerate(spec.claims):
        if comparison.claim not in claims:
            raise SpecError(
                f"claims.{i}.claim", comparison.claim, f"{one_of(claims, comparison.claim)}, of the register of claims"
            )
    return claims
