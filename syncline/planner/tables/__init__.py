"""Tables for the terminal: `columns` (headings and texts of fields), `layout` (widths), `display` (of commands)."""
