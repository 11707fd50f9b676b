"""/v1/responses, stateless: items in, items out, and the events that tell them as they come."""
