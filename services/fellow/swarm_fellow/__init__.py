"""The agent of one machine: dials the leader, fetches weights, runs stage processes. Never imports torch."""
