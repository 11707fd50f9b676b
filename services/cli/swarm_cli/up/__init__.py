"""`swarm up`: a leader, a gateway and fellows on one machine, as separate processes that end together."""
