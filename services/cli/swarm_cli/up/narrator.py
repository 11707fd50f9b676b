"""What `swarm up` tells the person in front of it. Progress to stderr, the way in to stdout."""

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from swarm_cli.inference import TEMPERATURE
from swarm_cli.terminal import err, out


class Narrator:
    """Lines with the seconds since the start. is_beside_chat: a chat writes to the same terminal."""

    def __init__(self, started_s: float) -> None:
        """started_s: on the monotonic clock."""
        self.started_s = started_s
        self.is_beside_chat = False

    def say(self, text: str) -> None:
        """One line on stderr."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Something that should not happen."""
        self._print(text, style="yellow")

    def _print(self, text: str, style: str | None = None) -> None:
        """A line of its own, wherever a chat left the cursor."""
        begin = "\n" if self.is_beside_chat else ""
        err().print(f"{begin}[{time.monotonic() - self.started_s:6.1f} s] {text}", style=style, markup=False)

    def show_way_in(
        self,
        base_url: str,
        leader: str,
        model_id: str | None,
        metrics: Mapping[str, str],
        quiet: bool,
        token_file: Path | None,
    ) -> None:
        """Where to go from here. metrics: process -> URL. quiet: stdout belongs to a reply, so this goes to stderr.

        token_file: where the admin token lies, when tokens are asked for.
        """
        console = err() if quiet else out()
        console.print(f"\nOpenAI base URL: {base_url}/v1", markup=False)
        console.print(f"gRPC:            {leader}", markup=False)
        for name, url in metrics.items():
            console.print(f"Prometheus:      {url} ({name})", markup=False, soft_wrap=True)
        if model_id is not None:
            # Never folded: a command that is cut in two cannot be pasted.
            console.print(curl_line(base_url, model_id, token_file), markup=False, soft_wrap=True)
        console.print(markup=False)


def curl_line(base_url: str, model_id: str, token_file: Path | None = None) -> str:
    """A command that streams a reply, ready to paste. token_file: read by the shell, so that no token is shown."""
    question = {
        "model": model_id,
        "stream": True,
        "temperature": TEMPERATURE,
        "messages": [{"role": "user", "content": "Hello!"}],
    }
    headers = "-H 'Content-Type: application/json'"
    if token_file is not None:
        headers += f' -H "Authorization: Bearer $(cat {shlex.quote(str(token_file))})"'
    return f"curl -N {base_url}/v1/chat/completions {headers} -d '{json.dumps(question)}'"
