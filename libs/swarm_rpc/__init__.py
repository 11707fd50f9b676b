"""gRPC as every process uses it: channels, servers, policy, errors, and JSON routes from descriptors."""
