"""Real links on one machine: network namespaces joined by lines of a known rate and delay."""
