"""Write everything that is made from the register: docs/claims.md, states.json, and the pages of replications."""

from pathlib import Path

from replication.claims import STATES_FILE
from replication.replications.readme import write_page
from replication.scoreboard.claim_register import page, states_text
from replication.scoreboard.trained import RESULTS

STATES_FILE.write_text(states_text(), encoding="utf-8")
Path(RESULTS.parent / "docs" / "claims.md").write_text(page(), encoding="utf-8")
for folder in sorted((RESULTS / "replication").glob("*/finals.parquet")):
    write_page(folder.parent)
