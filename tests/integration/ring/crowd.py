"""Many users of one ring at once: what each asks, how each leaves, what each hears, and whether that was right."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import grpc
from silentswarm.core.v1 import generation_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc
from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_rpc.channel import dial

from tests.integration.ring.lone_runs import LoneModel, make_prompts, text_of
from tests.integration.ring.stages import StageRing
from tests.models import VOCABULARY

REPLY_TIMEOUT_S = 90.0
STOP_TEXTS = 12  # of one token each: about every third reply of 12 tokens meets one


class Leaves(Enum):
    """How a user goes."""

    AT_THE_END = "at the end"
    CANCELLING = "cancelling"
    DISCONNECTING = "disconnecting"
    AT_A_DEADLINE = "at a deadline"


@dataclass(frozen=True)
class User:
    """One request. patience: tokens after which the user leaves, or tenths of seconds for a deadline."""

    name: str
    prompt: tuple[int, ...]
    new_tokens: int
    stop: tuple[int, ...] = ()  # tokens whose text ends the reply
    leaves: Leaves = Leaves.AT_THE_END
    patience: int = 0
    caller: str = ""
    weight: float = 1.0

    def generation(self) -> generation_pb2.Generation:
        return generation_pb2.Generation(
            prompt_ids=generation_pb2.TokenIds(ids=self.prompt),
            sampling=generation_pb2.Sampling(temperature=0),
            new_tokens_max=self.new_tokens,
            ignore_eos=True,
            stop=[text_of([token]) for token in self.stop],
            caller=self.caller,
            caller_weight=self.weight,
        )


@dataclass
class Heard:
    """What a user was told."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    positions: list[int] = field(default_factory=list)  # in the queue
    started: bool = False
    done: generation_pb2.GenerationEvent.Done | None = None
    failed: generation_pb2.GenerationEvent.Failed | None = None
    code: grpc.StatusCode | None = None  # that the call ended with, when not with an event
    ended_s: float = 0.0  # on the event loop's clock

    @property
    def is_ended(self) -> bool:
        """The ring had the last word."""
        return self.done is not None or self.failed is not None

    def add(self, event: generation_pb2.GenerationEvent) -> None:
        """Take one event."""
        kind = event.WhichOneof("event")
        if kind == "queued":
            self.positions.append(event.queued.position)
        elif kind == "started":
            self.started = True
        elif kind == "tokens":
            self.ids += event.tokens.ids
            self.text += event.tokens.text
        elif kind == "done":
            self.done = event.done
        elif kind == "failed":
            self.failed = event.failed


async def visit(ring: StageRing, user: User, heard: Heard | None = None) -> Heard:
    """Ask, read, leave as the user does."""
    heard = heard or Heard()
    channel = dial(f"unix:{ring.stages[0].socket}")
    timeout_s = user.patience / 10 if user.leaves is Leaves.AT_A_DEADLINE else REPLY_TIMEOUT_S
    request = rpc.GenerateRequest(request_id=user.name, generation=user.generation())
    call = stage_pb2_grpc.StageStub(channel).Generate(request, timeout=timeout_s)
    try:
        await _read(call, user, heard)
        if user.leaves is Leaves.CANCELLING:
            call.cancel()
    except grpc.RpcError as error:
        heard.code = error.code()
    finally:
        heard.ended_s = asyncio.get_running_loop().time()
        await channel.close()  # with the call, when it still runs
    return heard


async def _read(call: grpc.aio.UnaryStreamCall, user: User, heard: Heard) -> None:
    """Until the end, or until the user has enough."""
    leaves_early = user.leaves in (Leaves.CANCELLING, Leaves.DISCONNECTING)
    while (event := await call.read()) is not grpc.aio.EOF:
        heard.add(event)
        if leaves_early and len(heard.ids) >= user.patience:
            return


def make_crowd(numbers: random.Random, count: int, longest: int = 120, new_tokens: int = 24) -> list[User]:
    """Users of three callers of different weight; half stay to the end, every third brings stop texts."""
    users = []
    for place, prompt in enumerate(make_prompts(count, numbers, longest)):
        leaves = numbers.choice([Leaves.AT_THE_END] * 3 + list(Leaves)[1:])
        caller, weight = numbers.choice([("ann", 3.0), ("bob", 1.0), ("", 1.0)])
        users.append(
            User(
                name=f"user-{place}",
                prompt=prompt,
                new_tokens=numbers.randrange(1, new_tokens + 1),
                stop=tuple(numbers.sample(range(5, VOCABULARY), STOP_TEXTS)) if place % 3 == 0 else (),
                leaves=leaves,
                patience=numbers.randrange(0, 8),
                caller=caller,
                weight=weight,
            )
        )
    return users


def assert_heard(users: Sequence[User], all_heard: Sequence[Heard], lone: LoneModel) -> None:
    """Every reply is the lone run's, cut where it was told to end, or where its user left."""
    wrong = lone.first_wrong([user.prompt for user in users], [heard.ids for heard in all_heard])
    for user, heard, place in zip(users, all_heard, wrong, strict=True):
        assert place is None, f"{user}: token {place} of {heard.ids} is not what it says alone"
        assert heard.failed is None, f"{user}: {heard.failed}"
        stopped_at = next((place for place, token in enumerate(heard.ids) if token in user.stop), None)
        assert stopped_at in (None, len(heard.ids) - 1), f"{user}: {heard.ids} goes on behind its stop text"
        assert heard.text == text_of(heard.ids[:stopped_at]), f"{user}: {heard.ids} was told as {heard.text}"
        if heard.done is not None:
            _assert_done(user, heard, is_stopped=stopped_at is not None)
        else:
            assert user.leaves is not Leaves.AT_THE_END, f"{user}: ended with {heard.code}"


def _assert_done(user: User, heard: Heard, is_stopped: bool) -> None:
    assert heard.done is not None
    reason = generation_pb2.FINISH_REASON_STOP if is_stopped else generation_pb2.FINISH_REASON_LENGTH
    assert heard.done.finish_reason == reason, f"{user}: {heard.done}"
    assert heard.done.completion_tokens == len(heard.ids)
    assert is_stopped or len(heard.ids) == user.new_tokens
