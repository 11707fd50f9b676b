"""Takes secrets of this software out of texts that people will read. Finds them by their form alone."""

import re

# Tokens of people, credentials of machines, join tokens; what follows these is the secret. A bearer token of any other
# form is long.
_SECRET = re.compile(r"(sk-swarm-|sk-node-|swarm-join-)[A-Za-z0-9._~+/=-]{4,}|([Bb]earer +)[A-Za-z0-9._~+/=-]{16,}")


def redacted(text: str) -> str:
    """The text with every secret cut to its kind, "sk-swarm-***"."""
    if "-" not in text and "earer" not in text:
        return text
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", text)
