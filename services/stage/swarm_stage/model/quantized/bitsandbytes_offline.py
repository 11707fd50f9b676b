"""bitsandbytes, imported so that it fetches nothing. Import it from here alone."""

from swarm_stage.hidden_packages import hidden

# On processors with bf16 instructions bitsandbytes asks the package `kernels`, where that is installed, for a kernel
# from the hub when it is imported, and runs what comes. Told that there is none it uses its own.
with hidden("kernels"):
    import bitsandbytes

__all__ = ["bitsandbytes"]
