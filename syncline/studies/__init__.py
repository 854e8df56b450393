"""Studies of papers: what a claim is made of, computed anew. A folder per study."""
