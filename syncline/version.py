"""The version of the package, for who writes it into results."""

__version__ = "0.1.0"
