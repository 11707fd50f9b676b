"""What a caller may be called: an opaque fingerprint that the gateway makes, never a credential."""

import re

CALLER_FORM = "1 to 64 letters, digits or _.:-"
_CALLER = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def is_caller(name: str) -> bool:
    """Whether this can be a caller's name; "" is nobody's."""
    return _CALLER.fullmatch(name) is not None
