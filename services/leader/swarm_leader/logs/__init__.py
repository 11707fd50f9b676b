"""Logs of fellows: kept on the leader's disk within bounds, and handed on to whoever follows them."""
