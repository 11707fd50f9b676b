"""One reply as stage 0 sees it: what was asked, what it is told, how far it is. Pure state."""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from silentswarm.core.v1 import generation_pb2, token_set_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import SwarmError

from swarm_stage.engine.constraint import Constraint
from swarm_stage.engine.reply_times import ReplyTimes
from swarm_stage.engine.sampling import NEUTRAL, Sampling

if TYPE_CHECKING:
    from swarm_stage.engine.session_store import KeptSession

HELD_IDS_MAX = 64  # ends of turn of one model; a later stage refuses more


@dataclass(frozen=True)
class Waiting:
    """The reply cannot start yet. position: 1 is next. reason: what it waits for, with numbers, for people."""

    position: int
    reason: str


@dataclass(frozen=True)
class Admitted:
    """The reply may start."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a drawn token was for the model itself, before biases, penalties, temperature and constraints.

    logprob: natural logarithm. top: (id, logprob) of the likeliest, best first, as many as were asked for; of equally
    likely ones the lower id first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Tokens:
    """Tokens that came; empty when a prompt piece went round, of this reply or another (a sign of life).

    likelihoods: one for each when the request asks for them, else none.
    """

    ids: tuple[int, ...]
    likelihoods: tuple[Likelihood, ...] = ()


@dataclass(frozen=True)
class Finished:
    """The reply is complete. timing: but for what the engine does not see (total, tokeniser, text)."""

    reason: generation_pb2.FinishReason
    completion_tokens: int
    timing: generation_pb2.Timing


@dataclass(frozen=True)
class Broke:
    """The reply failed."""

    error: SwarmError


@dataclass(frozen=True)
class Lap:
    """A probe came back, with what every later stage said of itself and what the last one drew."""

    traces: tuple[ring_pb2.Trace, ...]
    tokens: tuple[int, ...]


Note = Waiting | Admitted | Tokens | Finished | Broke | Lap


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked. notify is called from the engine thread and must not block.

    end_ids: tokens that end the reply. new_tokens_max: at least 1. new_tokens_min: end_ids are not drawn, and stop
    texts not looked for, before so many tokens. caller: whose it is, one opaque word; callers share by caller_weight,
    which is above 0. tokenize_ms: what template and tokeniser took. constraint: the reply's shape; None is any.
    adapter: the one it runs with; "" is the base. resume_ids: tokens of the reply that an earlier attempt drew; they
    count as generated, are computed with the prompt, and are not drawn or told again.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: generation_pb2.Sampling
    new_tokens_max: int
    end_ids: frozenset[int]
    notify: Callable[[Note], None]
    arrived_s: float
    probe: bool = False
    new_tokens_min: int = 0
    caller: str = ""
    caller_weight: float = 1.0
    tokenize_ms: float = 0.0
    constraint: Constraint | None = None
    adapter: str = ""
    resume_ids: tuple[int, ...] = ()

    @cached_property
    def given_ids(self) -> tuple[int, ...]:
        """What is computed before a token is drawn: the prompt, and the reply as far as it had come."""
        return self.prompt_ids + self.resume_ids

    @cached_property
    def reply_key(self) -> bytes:
        """Names the reply on every stage, over epochs: 16 bytes. Empty for a probe, of which nothing is kept."""
        if self.probe:
            return b""
        who = [self.request_id.encode(), self.caller.encode(), self.adapter.encode()]
        named = [*who, array("Q", self.prompt_ids).tobytes()]
        digest = blake2b(digest_size=16)
        for part in named:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()

    @property
    def needed_tokens(self) -> int:
        """The most its KV can grow to."""
        return len(self.prompt_ids) + self.new_tokens_max

    def hold(self) -> ring_pb2.Hold | None:
        """What the stage that draws must not draw yet; None when it may draw anything from the start."""
        if not self.new_tokens_min or not self.end_ids:
            return None
        ids = sorted(self.end_ids)[:HELD_IDS_MAX]
        return ring_pb2.Hold(ids=ids, until_pos=len(self.prompt_ids) + self.new_tokens_min)


@dataclass(slots=True)
class DecodeBatch:
    """A decode batch that is out: sessions when it left, those still awaited, when its compute began."""

    sessions: int
    awaited: int
    started_s: float = 0.0
    is_noted: bool = False  # what it cost is learned from the first of its answers


@dataclass(eq=False)
class Reply:
    """A running reply. number: its place in the budget. session: its number in the ring, 0 before its first piece.

    sampling: of its request, checked. penalised_ids: what whoever draws must know of the prompt, each of its tokens
    once, for a repetition penalty. drawn_before: what it must know of the reply, for any penalty: what an earlier
    attempt drew. allowed: what its constraint lets be drawn next, once it is_shaped; None is any. prompt_sent: of what
    is given. kept: what it goes on from, until its session is open. resumes_at: where the other stages take up what
    they kept; 0 when all is computed anew.
    """

    request: Request
    number: int
    session: int = 0
    sampling: Sampling = NEUTRAL
    penalised_ids: Sequence[int] = ()
    drawn_before: Sequence[int] = ()
    allowed: token_set_pb2.TokenSet | None = None
    is_shaped: bool = False
    prompt_sent: int = 0
    kept: "KeptSession | None" = None
    resumes_at: int = 0
    due: deque[tuple[int, int]] = field(default_factory=deque)  # (pos, positions) whose answers are awaited, in order
    generated: list[int] = field(default_factory=list)
    batch: DecodeBatch | None = None  # that it is out with
    times: ReplyTimes = field(default_factory=ReplyTimes)

    @property
    def is_prefilling(self) -> bool:
        """Part of what is given is still to be sent."""
        return self.prompt_sent < len(self.request.given_ids)

    @property
    def drawn(self) -> int:
        """Tokens that this attempt drew."""
        return len(self.generated) - len(self.request.resume_ids)

    @property
    def has_drawn(self) -> bool:
        """Its first token came: it decodes."""
        return self.drawn > 0

    @property
    def next_pos(self) -> int:
        """Where the newest token stands."""
        return len(self.request.prompt_ids) + len(self.generated) - 1

    def remember_penalised(self) -> None:
        """Note what penalties look at, if its sampling has any."""
        request = self.request
        if self.sampling.repetition_penalty != 1:
            self.penalised_ids = tuple(sorted(set(request.prompt_ids)))
        if self.sampling.counts_tokens:
            self.drawn_before = request.resume_ids

    def finish_reason(self) -> generation_pb2.FinishReason:
        """Why it is over after its newest token; UNSPECIFIED while it goes on."""
        return reason_to_end(self.request, self.generated)


def reason_to_end(request: Request, generated: Sequence[int]) -> generation_pb2.FinishReason:
    """Why a reply is over after the newest of these tokens; UNSPECIFIED while it goes on.

    Ends that are held back yet are drawn all the same are the only way on that a constraint leaves.
    """
    count = len(generated)
    may_end = count > request.new_tokens_min or request.constraint is not None
    if may_end and generated and generated[-1] in request.end_ids:
        return generation_pb2.FINISH_REASON_STOP
    if count >= request.new_tokens_max:
        return generation_pb2.FINISH_REASON_LENGTH
    return generation_pb2.FINISH_REASON_UNSPECIFIED
