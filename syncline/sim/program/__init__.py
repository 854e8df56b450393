"""The input and output of a simulation: programs, the rounds of collectives, disturbances, the timeline."""
