"""What a stage process has imported by the time its socket answers."""

import json
import subprocess
import sys

HEAVY = ["torch", "transformers"]


def test_a_stage_answers_before_it_imports_what_takes_seconds():
    program = f"import json, sys, swarm_stage.__main__; print(json.dumps([n for n in {HEAVY} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(done.stdout) == []
