"""Write the page docs/claims.md to standard output."""

import sys

from replication.scoreboard.claim_register import page

sys.stdout.write(page())
