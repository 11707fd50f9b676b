"""/api/v1 as JSON: the leader's RPCs through the routes of their descriptors."""
