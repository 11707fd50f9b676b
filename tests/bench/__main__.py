"""`python -m tests.bench NAME... | all`: measures, prints the table of speeds, and writes it with its conditions.

    .venv/bin/python -m tests.bench all --out speeds.md

Every figure comes of alternating pairs in one run; run it alone on the machine.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench import arrivals, conditions, gateway, sleeping, smollm, variants
from tests.bench.figures import Row, row_line, table
from tests.bench.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
Bench = Callable[[Settings], Awaitable[list[Row]]]
BENCHES: dict[str, Bench] = {
    "wakeups": sleeping.wakeups,
    "hop": sleeping.hop,
    "lap": sleeping.lap,
    "eight": sleeping.eight,
    "overlap": sleeping.overlap,
    "busy": sleeping.busy,
    "relay": sleeping.relay,
    "decode": smollm.decode,
    "decode_free": smollm.decode_free,
    "prefill": smollm.prefill,
    "two": smollm.two,
    "cut": smollm.cut,
    "distance": smollm.distance,
    "gaps": arrivals.gaps,
    "fairness": arrivals.fairness,
    "gateway": gateway.gateway,
}
# Measured only when named: they answer a question of how to build, and have no target.
ASIDE: dict[str, Bench] = {"variants": variants.variants}


async def measure(names: list[str], settings: Settings) -> tuple[list[Row], list[str]]:
    """Run benches one after the other; rows, and the load around each."""
    rows: list[Row] = []
    loads = []
    for name in names:
        before, started_s = conditions.load(), time.monotonic()
        try:
            found = await (BENCHES | ASIDE)[name](settings)
        except Exception as error:  # one bench that fails must not cost the others' figures
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            loads.append(f"{name}: FAILED, {type(error).__name__}: {error}")
            continue
        for row in found:
            print(row_line(row), flush=True)
        rows += found
        loads.append(f"{name}: {time.monotonic() - started_s:.0f} s, load before {before}, after {conditions.load()}")
    return rows, loads


def main() -> int:
    """Parse, measure, print, write. Returns 1 when a floor is not met or a bench failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="+", choices=[*BENCHES, *ASIDE, "all"], metavar="NAME", help=", ".join((*BENCHES, *ASIDE))
    )
    parser.add_argument("--pairs", type=int, default=3, help="alternating pairs per figure")
    parser.add_argument("--models-root", type=Path, default=ROOT / ".swarm" / "test-models")
    parser.add_argument("--out", type=Path, help="write the table here too")
    options = parser.parse_args()
    names = list(BENCHES) if "all" in options.names else options.names
    rows, loads = asyncio.run(measure(names, Settings(options.pairs, options.models_root)))
    text = table(rows, [*conditions.machine(), *loads])
    print(f"\n{text}")
    if options.out:
        options.out.write_text(text)
    return int(any(row.verdict == "NOT MET" for row in rows) or len(loads) < len(names))


if __name__ == "__main__":
    sys.exit(main())
