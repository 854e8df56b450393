"""The papers' evidence: studies, tables, the scoreboard, claims and replications, made with Syncline."""
