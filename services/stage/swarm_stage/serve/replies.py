"""One reply from request to events, on the event loop: text in, tokens through the engine, text out. No torch."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, DeadlinePassed, ServableCorrupt

from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.constraint import Constraint
from swarm_stage.engine.engine import Cancel, Conclude, Submit
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.reply import Admitted, Broke, Finished, Lap, Note, Request
from swarm_stage.serve.event_writer import EventWriter
from swarm_stage.text.content_grammar import CONSTRAINT_FIELD
from swarm_stage.text.grammar import Grammar, reply_grammar
from swarm_stage.text.hostile import TemplateHostile
from swarm_stage.text.reply_shape import PLAIN, ReplyShape

if TYPE_CHECKING:  # it imports torch, which waits until the socket answers
    from swarm_stage.text.codec import TextCodec

NEW_TOKENS_DEFAULT = 1024  # a reply nobody bounded; the context bounds it further
PROGRESS_TIMEOUT_S = 120.0  # no answer at all, not even to a prompt piece: a stage is frozen
ENCODE_TIMEOUT_S = 30.0  # a template or tokenizer that takes longer is broken, or the text is absurd
TEMPLATE_CHECK_S = 45.0  # a template has 5 s; the process it is rendered in may take long to start on a busy machine
ENCODERS = 2  # threads of their own: a slow template must not take those that everything else uses
COMPILERS = 2  # threads of their own: a grammar that takes its whole time must not hold up prompts
COMPILE_TIMEOUT_S = 20.0  # with the wait for a free one; the work itself has 2 s


@dataclass(frozen=True)
class Encoded:
    """A request's prompt, how its reply is read, and what shape it must have; grammar None is any."""

    ids: list[int]
    shape: ReplyShape = PLAIN
    grammar: Grammar | None = None


class Replies:
    """Turns generations into events. codec is None for a model without a tokenizer: token ids only."""

    def __init__(
        self, inbox: Inbox, codec: "TextCodec | None", vocabulary_size: int, budget: KvBudget, clock: Clock
    ) -> None:
        """budget: read only here; the engine thread owns it."""
        self._inbox = inbox
        self._codec = codec
        self._vocabulary_size = vocabulary_size
        # A tokenizer may name an end beyond the head, which is never drawn and must not be held back either.
        end_ids = codec.end_ids if codec is not None else frozenset()
        self._end_ids = frozenset(token for token in end_ids if token < vocabulary_size)
        self._budget = budget
        self._clock = clock
        self._encoders = ThreadPoolExecutor(ENCODERS, thread_name_prefix="encode")
        self._compilers = ThreadPoolExecutor(COMPILERS, thread_name_prefix="grammar")
        self._loop = asyncio.get_running_loop()
        self._mail: deque[tuple[asyncio.Queue[Note], Note]] = deque()  # from the engine thread, not delivered yet
        self._is_delivery_due = False

    async def generate(
        self, request_id: str, generation: generation_pb2.Generation
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """Events of one reply; leaving the iterator early ends the session on every stage.

        Raises BadRequest for input that cannot be used; every later failure is a Failed event.
        """
        arrived_s = self._clock.monotonic_s()
        encoded = await self._encode_in_time(generation)
        resume = generation.resume
        constraint: Constraint | None = None
        if encoded.grammar is not None:
            constraint = await self._compile_in_time(encoded.grammar, resume.ids)
        tokenize_ms = (self._clock.monotonic_s() - arrived_s) * 1e3
        notes: asyncio.Queue[Note] = asyncio.Queue()  # bounded by new_tokens_max, which admission has reserved
        request = self._request(request_id, generation, encoded.ids, notes, arrived_s, tokenize_ms, constraint)
        writer = EventWriter(self._codec, list(generation.stop), request, self._clock, encoded.shape)
        if generation.HasField("resume"):
            reason = await self._restore_in_time(writer, resume)
            if reason != generation_pb2.FINISH_REASON_UNSPECIFIED:  # only its end was not told
                over_ms = (self._clock.monotonic_s() - arrived_s) * 1e3
                timing = generation_pb2.Timing(queue_ms=over_ms)
                over: list[Note] = [Admitted(len(encoded.ids)), Finished(reason, len(resume.ids), timing)]
                for event in writer.events(over):
                    yield event
                return
        await self._inbox.put(Submit(request))
        try:
            while not writer.is_over:
                for event in writer.events(await self._next_notes(notes, writer.is_admitted)):
                    yield event
                if writer.wants_conclusion:
                    self._inbox.put_now(Conclude(request_id))
        finally:
            if not writer.is_over:
                self._inbox.put_now(Cancel(request_id))

    async def lap(self, timeout_s: float) -> Lap:
        """Send a throwaway position round the ring. Raises DeadlinePassed, or what a stage failed with."""
        notes: asyncio.Queue[Note] = asyncio.Queue()
        request = Request(
            request_id="probe",
            prompt_ids=(0,),
            sampling=generation_pb2.Sampling(temperature=0.0),
            new_tokens_max=1,
            end_ids=frozenset(),
            notify=self._notifier(notes),
            arrived_s=self._clock.monotonic_s(),
            probe=True,
        )
        await self._inbox.put(Submit(request))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    note = await notes.get()
                    if isinstance(note, Broke):
                        raise note.error
                    if isinstance(note, Lap):
                        return note
        except TimeoutError:
            raise DeadlinePassed(f"a position did not come round the ring within {timeout_s:g} s") from None
        finally:
            self._inbox.put_now(Cancel("probe"))

    async def check_template(self, timeout_s: float = TEMPLATE_CHECK_S) -> None:
        """Render the chat template once, so that one that never ends fails the load. Raises ServableCorrupt."""
        chat = generation_pb2.Chat(messages=[generation_pb2.ChatMessage(role="user", content="Hello!")])
        try:
            await self._encode_in_time(generation_pb2.Generation(chat=chat), timeout_s)
        except DeadlinePassed:
            raise ServableCorrupt(f"the chat template did not end within {timeout_s:g} s") from None
        except TemplateHostile as hostile:
            raise ServableCorrupt(hostile.message) from None
        except BadRequest:
            pass  # no template, or one that wants another conversation: callers are told when they ask

    async def _encode_in_time(
        self, generation: generation_pb2.Generation, timeout_s: float = ENCODE_TIMEOUT_S
    ) -> Encoded:
        """The request encoded off the loop. Raises BadRequest, DeadlinePassed."""
        encoding = self._loop.run_in_executor(self._encoders, self._encode, generation)
        try:
            async with asyncio.timeout(timeout_s):
                return await encoding
        except TimeoutError:
            raise DeadlinePassed(f"the prompt was not templated and tokenised within {timeout_s:g} s") from None

    async def _restore_in_time(
        self, writer: EventWriter, resume: generation_pb2.ReplyResume
    ) -> generation_pb2.FinishReason:
        """Let a reply's text stand where it broke off, off the loop. Raises BadRequest, DeadlinePassed."""
        restoring = self._loop.run_in_executor(self._encoders, writer.restore, resume)
        try:
            async with asyncio.timeout(ENCODE_TIMEOUT_S):
                reason = await restoring
        except TimeoutError:
            raise DeadlinePassed(f"the reply so far was not read within {ENCODE_TIMEOUT_S:g} s") from None
        if resume.is_flushed and reason == generation_pb2.FINISH_REASON_UNSPECIFIED:
            raise BadRequest("nothing but the end is missing, and these tokens do not end the reply", field="resume")
        return reason

    async def _compile_in_time(self, grammar: Grammar, accepted: Sequence[int] = ()) -> Constraint:
        """The grammar at work behind these tokens, compiled off the loop.

        Raises BadRequest, Overloaded, DeadlinePassed, StageFailed.
        """
        compiling = self._loop.run_in_executor(self._compilers, self._compile, grammar, accepted)
        try:
            async with asyncio.timeout(COMPILE_TIMEOUT_S):
                return await compiling
        except TimeoutError:
            raise DeadlinePassed(f"no grammar was compiled within {COMPILE_TIMEOUT_S:g} s") from None

    def _compile(self, grammar: Grammar, accepted: Sequence[int]) -> Constraint:
        assert self._codec is not None
        constraint = self._codec.grammar_compiler.constraint(grammar, self._vocabulary_size)
        for token in accepted:
            constraint.accept(token)
        return constraint

    def _encode(self, generation: generation_pb2.Generation) -> Encoded:
        """On a thread of its own: templates and tokenizers are slow on long input. Raises BadRequest."""
        encoded = self._encode_input(generation)
        if not encoded.ids:
            raise BadRequest("the prompt is empty", field="prompt")
        if max(encoded.ids) >= self._vocabulary_size:
            raise BadRequest(
                f"token {max(encoded.ids)} is not in this model's vocabulary of {self._vocabulary_size}",
                field="prompt_ids",
            )
        resume_ids, longest = generation.resume.ids, self._budget.longest_tokens
        if len(resume_ids) > longest or any(token >= self._vocabulary_size for token in resume_ids):
            most = f"at most {longest}, each below {self._vocabulary_size}"
            raise BadRequest(f"{len(resume_ids)} tokens of the reply to go on with; {most}", field="resume")
        if self._codec is None:
            if generation.HasField("constraint"):
                raise BadRequest("this model has no tokenizer, so no shape can be asked of it", field=CONSTRAINT_FIELD)
            return encoded
        if generation.sampling.HasField("top_logprobs"):
            _ = self._codec.token_bytes  # takes a moment the first time, which must not be the loop's
        if not encoded.shape.tools and not generation.HasField("constraint"):
            return encoded
        grammar = reply_grammar(generation, encoded.shape, self._codec.special_marks(encoded.shape))
        if grammar is not None and not self._end_ids:
            raise BadRequest("this model has no end of turn, so no shape can be asked of it", field=CONSTRAINT_FIELD)
        return Encoded(encoded.ids, encoded.shape, grammar)

    def _encode_input(self, generation: generation_pb2.Generation) -> Encoded:
        """Prompt ids. Raises BadRequest."""
        kind = generation.WhichOneof("input")
        if kind == "prompt_ids":
            return Encoded(list(generation.prompt_ids.ids))
        if self._codec is None:
            raise BadRequest("this model has no tokenizer; send prompt_ids", field="prompt")
        if kind == "prompt":
            return Encoded(self._codec.prompt_ids(generation.prompt))
        if kind == "chat":
            prompt = self._codec.chat_prompt(generation.chat)
            return Encoded(prompt.ids, prompt.shape)
        raise BadRequest("there is no prompt", field="prompt")

    def _request(
        self,
        request_id: str,
        generation: generation_pb2.Generation,
        prompt_ids: list[int],
        notes: "asyncio.Queue[Note]",
        arrived_s: float,
        tokenize_ms: float,
        constraint: Constraint | None = None,
    ) -> Request:
        """What the engine is asked. Raises BadRequest for bounds that contradict each other."""
        new_tokens_max = self._new_tokens_max(generation, len(prompt_ids))
        if generation.new_tokens_min > new_tokens_max:
            raise BadRequest(
                f"new_tokens_min is {generation.new_tokens_min}; it must be at most new_tokens_max, {new_tokens_max}",
                field="new_tokens_min",
            )
        resume_ids = generation.resume.ids
        if len(resume_ids) > new_tokens_max:
            raise BadRequest(f"{len(resume_ids)} tokens of a reply that has at most {new_tokens_max}", field="resume")
        sampling = generation_pb2.Sampling()
        if self._codec is not None:
            for name, default in self._codec.default_sampling.items():
                setattr(sampling, name, default)
        sampling.MergeFrom(generation.sampling)
        weight = generation.caller_weight
        return Request(
            request_id=request_id,
            prompt_ids=tuple(prompt_ids),
            sampling=sampling,
            new_tokens_max=new_tokens_max,
            end_ids=frozenset() if generation.ignore_eos else self._end_ids,
            notify=self._notifier(notes),
            arrived_s=arrived_s,
            new_tokens_min=generation.new_tokens_min,
            caller=generation.caller,
            caller_weight=weight if 0 < weight < math.inf else 1.0,
            tokenize_ms=tokenize_ms,
            constraint=constraint,
            adapter=generation.adapter,
            resume_ids=tuple(resume_ids),
        )

    def _new_tokens_max(self, generation: generation_pb2.Generation, prompt_tokens: int) -> int:
        """As asked, or what the context leaves up to a default that a longer minimum lifts; at least 1."""
        if generation.HasField("new_tokens_max"):
            return max(1, generation.new_tokens_max)
        context_left = self._budget.longest_tokens - prompt_tokens
        return max(1, generation.new_tokens_min, min(NEW_TOKENS_DEFAULT, context_left))

    def _notifier(self, notes: "asyncio.Queue[Note]") -> Callable[[Note], None]:
        """What the engine thread calls. A step's notes to all its replies wake the loop once, not once each."""

        def notify(note: Note) -> None:
            self._mail.append((notes, note))
            if not self._is_delivery_due:
                self._is_delivery_due = True
                with contextlib.suppress(RuntimeError):  # the loop may be closing already
                    self._loop.call_soon_threadsafe(self._deliver)

        return notify

    def _deliver(self) -> None:
        """On the loop. The flag falls first: what comes from now on is delivered again, perhaps for nothing."""
        self._is_delivery_due = False
        while self._mail:
            notes, note = self._mail.popleft()
            notes.put_nowait(note)

    async def _next_notes(self, notes: "asyncio.Queue[Note]", is_admitted: bool) -> list[Note]:
        """The next note and all that came with it. Raises DeadlinePassed.

        Only an admitted reply must make progress; how long one may wait for its place is the leader's to say.
        """
        try:
            async with asyncio.timeout(PROGRESS_TIMEOUT_S if is_admitted else None):
                taken = [await notes.get()]
        except TimeoutError:
            raise DeadlinePassed(f"the ring made no progress for {PROGRESS_TIMEOUT_S:g} s") from None
        while not notes.empty():
            taken.append(notes.get_nowait())
        return taken
