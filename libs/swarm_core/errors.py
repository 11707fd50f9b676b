"""Failures as typed facts. Raised by domain and flows; swarm_rpc gives them codes, the gateway alone words HTTP."""

from enum import StrEnum
from typing import ClassVar


class Reason(StrEnum):
    """Why a call failed, for programs. The names are those of silentswarm.core.v1.Reason without the prefix."""

    INTERNAL = "INTERNAL"
    BAD_REQUEST = "BAD_REQUEST"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    MODEL_NOT_READY = "MODEL_NOT_READY"
    SERVABLE_CORRUPT = "SERVABLE_CORRUPT"
    FELLOW_NOT_FOUND = "FELLOW_NOT_FOUND"
    NO_FELLOW = "NO_FELLOW"
    TOO_FEW_FELLOWS = "TOO_FEW_FELLOWS"
    NOT_ENOUGH_MEMORY = "NOT_ENOUGH_MEMORY"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    CONTEXT_TOO_LONG = "CONTEXT_TOO_LONG"
    OVERLOADED = "OVERLOADED"
    DEADLINE = "DEADLINE"
    CANCELLED = "CANCELLED"
    STAGE_FAILED = "STAGE_FAILED"
    LINK_BROKEN = "LINK_BROKEN"
    FELLOW_LOST = "FELLOW_LOST"
    STALE_EPOCH = "STALE_EPOCH"
    BAD_FRAME = "BAD_FRAME"
    LOAD_FAILED = "LOAD_FAILED"
    HASH_MISMATCH = "HASH_MISMATCH"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNAVAILABLE = "UNAVAILABLE"
    CONFLICT = "CONFLICT"
    DISK = "DISK"
    REPLY_NOT_FOUND = "REPLY_NOT_FOUND"
    SESSION_NOT_KEPT = "SESSION_NOT_KEPT"


class SwarmError(Exception):
    """A failure with a reason a program can act on, a sentence a person can, and the numbers behind both.

    facts: JSON-like scalars under any names, also those another process chose; they travel as strings.
    """

    reason: ClassVar[Reason] = Reason.INTERNAL

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts: dict[str, str] = {key: str(fact) for key, fact in facts.items()}

    @property
    def why(self) -> Reason:
        """The reason of this very error; RemoteError carries its own."""
        return self.reason


class RemoteError(SwarmError):
    """A failure another process reported; carries that process's reason."""

    def __init__(self, reason: Reason, message: str, /, **facts: object) -> None:
        super().__init__(message, **facts)
        self._remote_reason = reason

    @property
    def why(self) -> Reason:
        return self._remote_reason


class BadRequest(SwarmError):
    """The request itself is wrong; facts["field"] names where."""

    reason = Reason.BAD_REQUEST


class ModelNotFound(SwarmError):
    """No such model in the catalog."""

    reason = Reason.MODEL_NOT_FOUND


class ModelNotReady(SwarmError):
    """The model exists and is not served now."""

    reason = Reason.MODEL_NOT_READY


class ServableCorrupt(SwarmError):
    """The model's files are damaged, incomplete or hostile."""

    reason = Reason.SERVABLE_CORRUPT


class FellowNotFound(SwarmError):
    """No such fellow."""

    reason = Reason.FELLOW_NOT_FOUND


class NoFellow(SwarmError):
    """No fellow that serves is connected."""

    reason = Reason.NO_FELLOW


class TooFewFellows(SwarmError):
    """Fewer fellows than stages."""

    reason = Reason.TOO_FEW_FELLOWS


class NotEnoughMemory(SwarmError):
    """The plan does not fit the memory there is."""

    reason = Reason.NOT_ENOUGH_MEMORY


class CapabilityMissing(SwarmError):
    """A fellow lacks what the request needs; facts name both."""

    reason = Reason.CAPABILITY_MISSING


class ContextTooLong(SwarmError):
    """The conversation can never fit this model's budget; retrying is useless."""

    reason = Reason.CONTEXT_TOO_LONG


class Overloaded(SwarmError):
    """Too many wait already; retry later."""

    reason = Reason.OVERLOADED


class DeadlinePassed(SwarmError):
    """The time allowed ran out; the message says who was waited for."""

    reason = Reason.DEADLINE


class Cancelled(SwarmError):
    """The caller went away or asked to stop."""

    reason = Reason.CANCELLED


class StageFailed(SwarmError):
    """A stage process failed or died."""

    reason = Reason.STAGE_FAILED


class LinkBroken(SwarmError):
    """A link between two stages, or to a fellow, broke."""

    reason = Reason.LINK_BROKEN


class FellowLost(SwarmError):
    """A fellow's link broke or its lease ran out."""

    reason = Reason.FELLOW_LOST


class StaleEpoch(SwarmError):
    """The message belongs to a placement epoch that is over."""

    reason = Reason.STALE_EPOCH


class BadFrame(SwarmError):
    """A frame is broken: a lying tensor header, an unknown session, a wrong position."""

    reason = Reason.BAD_FRAME


class LoadFailed(SwarmError):
    """A load did not finish."""

    reason = Reason.LOAD_FAILED


class HashMismatch(SwarmError):
    """The bytes received are not the bytes promised."""

    reason = Reason.HASH_MISMATCH


class Unauthenticated(SwarmError):
    """No credential, or one that is not known."""

    reason = Reason.UNAUTHENTICATED


class PermissionDenied(SwarmError):
    """The credential, or the lack of a policy, does not allow this."""

    reason = Reason.PERMISSION_DENIED


class Unavailable(SwarmError):
    """The process is starting or stopping."""

    reason = Reason.UNAVAILABLE


class Conflict(SwarmError):
    """The same thing is being done already, or stands in the way."""

    reason = Reason.CONFLICT


class DiskFull(SwarmError):
    """The disk is full or not writable."""

    reason = Reason.DISK


class ReplyNotFound(SwarmError):
    """No fellow keeps events of this reply, or it is another caller's."""

    reason = Reason.REPLY_NOT_FOUND


class SessionNotKept(SwarmError):
    """A session that was to go on is not kept on this stage; its prompt is to be computed again."""

    reason = Reason.SESSION_NOT_KEPT
