"""`swarm up` in front of a person: a terminal, Ctrl-C, and what is told when it cannot serve."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
TELL_S = 30.0
END_S = 20.0
CTRL_C = b"\x03"


@dataclass
class Seated:
    """`swarm up` on a terminal of its own. seen: what it showed so far."""

    supervisor: subprocess.Popen[bytes]
    terminal: int
    seen: str = ""

    def sees(self, pattern: str, within_s: float = TELL_S) -> bool:
        """Read until the pattern is on the screen after what was matched before; False when it does not come."""
        deadline_s = time.monotonic() + within_s
        while (found := re.search(pattern, self.seen)) is None:
            if not select.select([self.terminal], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                return False
            try:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # the last process that had the terminal is gone
                return re.search(pattern, self.seen) is not None
        self.seen = self.seen[found.end() :]
        return True

    def types(self, keys: bytes) -> None:
        """Press keys."""
        while keys:
            keys = keys[os.write(self.terminal, keys) :]

    def ends(self, keys: bytes = b"") -> int:
        """Its exit code; what it still writes is read, or it would wait for a reader.

        keys: pressed every second until it ends. A line editor that has shown its prompt and does not read yet
        takes a signal for later.
        """
        deadline_s = time.monotonic() + END_S
        while self.supervisor.poll() is None and time.monotonic() < deadline_s:
            self.types(keys)
            self.sees("(?!)", within_s=1.0)
        assert self.supervisor.poll() is not None, self.seen
        return self.supervisor.returncode


def command_of(folder: Path, *options: str) -> list[str]:
    """`swarm up` of one fellow and the model "tiny" on free ports."""
    fixed = ("--fellows", "1", "--model", "tiny", "--http-port", "0", "--grpc-port", "0", "--data-dir", str(folder))
    return [sys.executable, "-m", "swarm_cli", "up", *fixed, *options]


def environ_of(**more: str) -> dict[str, str]:
    """Its services are the stand-ins of this folder."""
    return {**os.environ, "PYTHONPATH": f"{HERE / 'stand_ins'}:{REPOSITORY}", **more}


@contextmanager
def seated(folder: Path, *options: str, **environ: str) -> Iterator[Seated]:
    """On a terminal while inside."""
    terminal, its_end = pty.openpty()
    supervisor = subprocess.Popen(
        [sys.executable, "-c", "import os,sys,fcntl,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
         "os.execv(sys.argv[1], sys.argv[1:])", *command_of(folder, *options)],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env=environ_of(TERM="dumb", COLUMNS="200", **environ),
        start_new_session=True,
    )  # fmt: skip
    os.close(its_end)
    try:
        yield Seated(supervisor, terminal)
    finally:
        supervisor.kill()  # the kernel ends its children
        supervisor.wait(timeout=END_S)
        os.close(terminal)


def test_ctrl_c_stops_a_reply_and_at_the_prompt_everything(tmp_path: Path):
    with seated(tmp_path, "--chat") as up:
        opened = up.sees("at the prompt Ctrl-C, Ctrl-D or /quit ends") and up.sees("you> ")
        children = psutil.Process(up.supervisor.pid).children()
        up.types(b"Where?\n")
        replied = up.sees("more more")
        up.types(CTRL_C)
        stopped = up.sees(r"\[stopped\]") and up.sees("you> ")
        up.types(b"And now?\n")
        replied_again = up.sees("more more")
        up.types(CTRL_C)
        stopped_again = up.sees("you> ")
        code = up.ends(CTRL_C)

    assert opened and replied and stopped and replied_again and stopped_again
    assert code == 0
    assert len(children) == 4
    assert not any(child.is_running() for child in children)


def test_sigterm_during_a_reply_ends_everything(tmp_path: Path):
    with seated(tmp_path, "--chat") as up:
        opened = up.sees("you> ")
        up.types(b"Where?\n")
        replied = up.sees("more more")
        children = psutil.Process(up.supervisor.pid).children()
        up.supervisor.send_signal(signal.SIGTERM)
        code = up.ends()

    assert opened and replied
    assert code == 0
    assert not any(child.is_running() for child in children)


def test_a_chat_interrupted_while_its_model_loads_is_130(tmp_path: Path):
    with seated(tmp_path, "--chat", SCRIPTED_LOADING="1") as up:
        loading = up.sees("loading tiny over 1 stage")
        code = up.ends(CTRL_C)

    assert loading
    assert code == 130


def test_a_chat_in_a_pipe_has_stdout_for_its_replies(tmp_path: Path):
    command = command_of(tmp_path, "--chat")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environ_of(SWARM_LEADER_HOST="0.0.0.0"),
    ) as up:  # fmt: skip
        out, err = up.communicate("/quit\n", timeout=TELL_S + END_S)

    assert (up.returncode, out) == (0, ""), err
    assert "OpenAI base URL" in err and '"temperature": 0.0' in err
    assert "SWARM_LEADER_HOST of the environment: ignored" in err
    assert "tiny is ready: a test token went through all stages" in err


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("disk: 0.4 GB free, 1.0 GB needed", "SWARM_MIN_FREE_DISK_GB"),
        ("database not writable: read-only", "SWARM_DATABASE_URL"),
    ],
)
def test_a_leader_that_can_take_no_work_is_told_at_once_and_ends_the_run(tmp_path: Path, reason: str, fix: str):
    ended = subprocess.run(
        command_of(tmp_path), env=environ_of(SCRIPTED_NOT_READY=reason), capture_output=True, text=True, timeout=TELL_S
    )

    told = [line for line in ended.stderr.splitlines() if reason in line]
    assert ended.returncode == 1
    assert len(told) == 2, ended.stderr
    first_s, last_s = (float(re.findall(r"\[ *([\d.]+) s\]", line)[0]) for line in told)
    assert 5.0 <= last_s - first_s < 10.0
    assert fix in ended.stderr


def test_a_model_too_large_names_the_options_of_up(tmp_path: Path):
    ended = subprocess.run(
        command_of(tmp_path), env=environ_of(SCRIPTED_TOO_LARGE="1"), capture_output=True, text=True, timeout=TELL_S
    )

    assert ended.returncode == 1
    assert "tiny needs 9 GB" in ended.stderr
    assert "raise --fellows and --stages" in ended.stderr
    assert "--num-stages" not in ended.stderr and "--context" not in ended.stderr
