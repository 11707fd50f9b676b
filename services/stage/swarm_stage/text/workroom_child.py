"""The process behind a Workroom: renders templates, tries grammars, one task after another. Holds nothing of value."""

import base64
import json
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from swarm_stage.text.grammar_trial import GrammarTrial
from swarm_stage.text.template import render

MEMORY_BYTES_MAX = 1024**3
_LENGTH = struct.Struct(">I")


def main() -> None:
    """Answer on the socket whose number is given, until it closes."""
    line = socket.socket(fileno=int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    trial: GrammarTrial | None = None
    while (task := _receive(line)) is not None:
        # Who asked kills in time; should it be gone, the alarm does, so that nothing is left behind to spin.
        signal.setitimer(signal.ITIMER_REAL, task["seconds"] + 1.0)
        if task["do"] == "begin":
            trial = _equipped(task)
            answer: dict[str, Any] = {}
        elif task["do"] == "render":
            answer = render(task["template"], task["values"])
        else:
            assert trial is not None
            answer = trial.run(task["grammars"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(line, answer)


def _equipped(task: Mapping[str, Any]) -> GrammarTrial | None:
    if "tokens" not in task:
        return None
    tokens = [base64.b64decode(token) for token in task["tokens"]]
    return GrammarTrial(tokens, task["special"], task["ends"])


def _receive(line: socket.socket) -> dict[str, Any] | None:
    head = line.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = bytearray()
    while len(body) < length:
        part = line.recv(min(length - len(body), 1 << 20))
        if not part:
            return None
        body += part
    return json.loads(body.decode("utf-8", "surrogatepass"))


def _send(line: socket.socket, answer: Mapping[str, Any]) -> None:
    message = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    line.sendall(_LENGTH.pack(len(message)) + message)


if __name__ == "__main__":
    main()
