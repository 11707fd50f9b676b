"""bitsandbytes, imported so that it fetches nothing. Import it from here alone."""

import sys

# On processors with bf16 instructions bitsandbytes asks the package `kernels`, where that is installed, for a kernel
# from the hub when it is imported, and runs what comes. Told that there is none it uses its own.
_here = sys.modules.get("kernels")
sys.modules["kernels"] = None  # type: ignore[assignment]
try:
    import bitsandbytes
finally:
    if _here is None:
        del sys.modules["kernels"]
    else:
        sys.modules["kernels"] = _here

__all__ = ["bitsandbytes"]
