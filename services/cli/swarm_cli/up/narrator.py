"""What `swarm up` tells the person in front of it. Progress to stderr, the way in to stdout."""

import json
import time
from collections.abc import Mapping

from swarm_cli.inference import TEMPERATURE
from swarm_cli.terminal import err, out


class Narrator:
    """Lines with the seconds since the start."""

    def __init__(self, started_s: float) -> None:
        """started_s: on the monotonic clock."""
        self.started_s = started_s

    def say(self, text: str) -> None:
        """One line on stderr."""
        err().print(f"[{time.monotonic() - self.started_s:6.1f} s] {text}", markup=False)

    def warn(self, text: str) -> None:
        """Something that should not happen."""
        err().print(f"[{time.monotonic() - self.started_s:6.1f} s] {text}", style="yellow", markup=False)

    def show_way_in(
        self, base_url: str, leader: str, model_id: str | None, metrics: Mapping[str, str], quiet: bool
    ) -> None:
        """Where to go from here. metrics: process -> URL. quiet: stdout belongs to a reply, so this goes to stderr."""
        console = err() if quiet else out()
        console.print(f"\nOpenAI base URL: {base_url}/v1", markup=False)
        console.print(f"gRPC:            {leader}", markup=False)
        for name, url in metrics.items():
            console.print(f"Prometheus:      {url} ({name})", markup=False, soft_wrap=True)
        if model_id is not None:
            # Never folded: a command that is cut in two cannot be pasted.
            console.print(curl_line(base_url, model_id), markup=False, soft_wrap=True)
        console.print(markup=False)


def curl_line(base_url: str, model_id: str) -> str:
    """A command that streams a reply, ready to paste."""
    question = {
        "model": model_id,
        "stream": True,
        "temperature": TEMPERATURE,
        "messages": [{"role": "user", "content": "Hello!"}],
    }
    return f"curl -N {base_url}/v1/chat/completions -H 'Content-Type: application/json' -d '{json.dumps(question)}'"
