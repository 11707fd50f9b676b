"""The swarm's own certificates: a small authority, the leader's identity, the identity of machines."""
