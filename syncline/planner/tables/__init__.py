"""Tables of answers: a column has a name, a unit, a format and a meaning; `display.py` prints them."""
