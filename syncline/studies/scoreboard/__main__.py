"""Writes docs/claims.md to standard output."""

import sys

from syncline.studies.scoreboard.claims import page

sys.stdout.write(page())
