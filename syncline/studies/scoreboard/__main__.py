"""Write the page docs/claims.md to standard output."""

import sys

from syncline.studies.scoreboard.claim_register import page

sys.stdout.write(page())
