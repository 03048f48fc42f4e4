"""`validate --compile`: what the rules let through, compiled for its arch on a machine without a GPU."""
