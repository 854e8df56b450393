"""A worker program: instructions, the times at which they start, and the timeline that they leave."""
