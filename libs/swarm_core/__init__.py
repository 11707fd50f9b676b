"""The nouns, errors and ground rules every process shares. No grpc, no torch."""
