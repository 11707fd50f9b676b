"""`swarm`: a gRPC client of the leader, and the supervisor that runs a whole swarm on one machine."""
