"""Packages a library would import if it found them, hidden while it is imported. Changes nothing imported already."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Imports inside the block find these packages not installed; one that is imported already comes back after it."""
    here = {name: sys.modules.get(name) for name in packages}
    sys.modules |= dict.fromkeys(packages)  # None: what the import system takes for "there is none"
    try:
        yield
    finally:
        for name, module in here.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
