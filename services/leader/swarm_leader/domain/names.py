"""Names of fellows for people: tidy and unique. Names of pools: as they are, or refused. Pure."""

import re
from collections.abc import Collection

NAME_MAX = 64
_UNTIDY = re.compile(r"[^A-Za-z0-9._-]+")

_POOL = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
POOL_FORM = "1 to 63 lower-case letters, digits and dashes, and does not begin with a dash"


def is_pool(name: str) -> bool:
    """Whether a pool may be called so; see POOL_FORM."""
    return _POOL.fullmatch(name) is not None


def tidy_name(wanted: str) -> str:
    """The name with nothing but letters, digits, dots, dashes and underscores; "fellow" when nothing is left."""
    return _UNTIDY.sub("-", wanted.strip()).strip("-.")[:NAME_MAX] or "fellow"


def unique_name(wanted: str, held: str, taken: Collection[str]) -> str:
    """The wanted name, or "wanted-2", "wanted-3" ... when others have it.

    held: what the fellow was called so far; kept when it came from the same wish. taken: names of the others.
    """
    base = tidy_name(wanted)
    if held and held not in taken and re.fullmatch(re.escape(base) + r"(-\d+)?", held):
        return held
    if base not in taken:
        return base
    number = 2
    while f"{base}-{number}" in taken:
        number += 1
    return f"{base}-{number}"
