"""Tables for people: `columns` (headings and formats), `layout`, `column_selection`, `display` (of commands)."""
