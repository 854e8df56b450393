"""Tables for the terminal: `table` (rows by declared columns), `layout` (widths), `display` (of commands)."""
