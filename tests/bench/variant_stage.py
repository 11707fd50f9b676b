"""A stage process under another interpreter setting or event loop, to measure what that is worth. Real in all else.

BENCH_SWITCH_MS: how long a thread may keep the interpreter (Python's own is 5). BENCH_UVLOOP=1: uvloop's event loop.
BENCH_GC_OFF=1: no cyclic garbage collection after the load.
"""

import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable, Coroutine

from swarm_core.logs import configure_logs
from swarm_stage.serve.listener import serve
from swarm_stage.serve.parent import die_with_parent


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run `work` to its end as the environment says, and end the process."""
    if switch_ms := os.environ.get("BENCH_SWITCH_MS"):
        sys.setswitchinterval(float(switch_ms) / 1e3)
    if os.environ.get("BENCH_GC_OFF"):
        gc.disable()
    if os.environ.get("BENCH_UVLOOP"):
        with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
            runner.run(work())
    else:
        asyncio.run(work())
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """`variant_stage serve --socket PATH`, as swarm_stage."""
    configure_logs("stage", "WARNING", False)
    die_with_parent()
    run(lambda: serve(sys.argv[sys.argv.index("--socket") + 1]))


if __name__ == "__main__":
    main()
