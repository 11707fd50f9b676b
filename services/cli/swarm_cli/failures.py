"""How a failure looks to a person and to a script: words with the fix, and an exit code. Prints nothing."""

import re
from collections.abc import Mapping
from typing import Final

import grpc
from swarm_core.errors import Reason, SwarmError
from swarm_rpc.errors import error_of

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
DENIED: Final = 5
INTERRUPTED: Final = 130  # what a shell reports for SIGINT

_STATUS_DETAILS = "grpc-status-details-bin"  # present exactly when a server of ours wrote the error
_EXIT_CODES = {
    Reason.BAD_REQUEST: USAGE,
    Reason.MODEL_NOT_FOUND: NOT_FOUND,
    Reason.FELLOW_NOT_FOUND: NOT_FOUND,
    Reason.UNAUTHENTICATED: DENIED,
    Reason.PERMISSION_DENIED: DENIED,
}
FIXES = {
    Reason.MODEL_NOT_FOUND: "`swarm models` lists what exists; `swarm model-import SOURCE` adds one",
    Reason.FELLOW_NOT_FOUND: "`swarm fellows` lists the machines",
    Reason.NO_FELLOW: "start one: `swarm-fellow --leader HOST:PORT`",
    Reason.TOO_FEW_FELLOWS: "ask for fewer stages, or start more fellows",
    Reason.NOT_ENOUGH_MEMORY: "the options are --num-stages, --context and --quantization nf4; "
    "`swarm model-unload ID` frees memory",
    Reason.CONTEXT_TOO_LONG: "shorten the conversation, or lower --max-tokens",
    Reason.UNAUTHENTICATED: "set SWARM_API_KEY, or SWARM_API_KEY_FILE to a file that holds it; on the leader's machine "
    "its own user needs neither, its admin token lies in the leader's data folder",
    Reason.SERVABLE_CORRUPT: "import it again: `swarm model-import SOURCE --id ID`",
}
# Advice in the options of `swarm up`, which has others.
UP_FIXES = {
    Reason.TOO_FEW_FELLOWS: "give a smaller --stages, or as many --fellows",
    Reason.NOT_ENOUGH_MEMORY: "raise --fellows and --stages, give --quantization nf4, or lower "
    "SWARM_SERVE_CONTEXT_TOKENS",
}
_COMMAND = re.compile(r"`(swarm[ -][a-z-]+)")


class LeaderUnreachable(SwarmError):
    """No leader answers at the address."""

    reason = Reason.UNAVAILABLE


class LoadDidNotFinish(SwarmError):
    """A load ended in another state than ready; the message is the leader's reason."""

    reason = Reason.LOAD_FAILED


def failure_of(call: grpc.RpcError, address: str) -> SwarmError:
    """The error of a call: the leader's own words, or that nothing answered at `address`."""
    trailing = {key for key, _ in (call.trailing_metadata() or ())}
    if call.code() is grpc.StatusCode.UNAVAILABLE and _STATUS_DETAILS not in trailing:
        return LeaderUnreachable(
            f"no leader answers at {address}: start one with `swarm up` or `swarm-leader`, or set SWARM_LEADER",
            address=address,
        )
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED and _STATUS_DETAILS not in trailing:
        return SwarmError(f"the leader at {address} did not finish in time; its log says what it waits for")
    return error_of(call)


def exit_code_of(error: SwarmError) -> int:
    """The exit code a script sees."""
    if isinstance(error, LeaderUnreachable):
        return UNREACHABLE
    return _EXIT_CODES.get(error.why, FAILED)


def _fix_of_scope(error: SwarmError) -> str:
    """How to get the scope that was missing."""
    scope = error.facts.get("scope", "")
    return f"an admin makes such a token: `swarm tokens create LABEL --scope {scope}`" if scope else ""


def words_of(error: SwarmError, fixes: Mapping[Reason, str] = FIXES) -> str:
    """The sentence, and the fix on a line of its own when there is one that the sentence does not name already."""
    fix = fixes.get(error.why, "") or _fix_of_scope(error)
    if not fix or any(command in error.message for command in _COMMAND.findall(fix)):
        return error.message
    return f"{error.message}\n{fix}"
