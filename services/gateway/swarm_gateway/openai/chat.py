"""POST /v1/chat/completions: one generation, whole or streamed. A client that leaves ends it on every stage."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.clock import Clock
from swarm_core.errors import StageFailed, SwarmError
from swarm_rpc.reasons import error_from_proto

from swarm_gateway.bodies import read_body
from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Events, Leader
from swarm_gateway.openai import shapes
from swarm_gateway.openai.chat_request import ChatRequest, parse_chat_request
from swarm_gateway.openai.generation import generation_of
from swarm_gateway.problems import HttpProblem, error_document, json_response, problem_of
from swarm_gateway.sse import EventStream, ReaderGone

log = structlog.get_logger()
GenerateEvents = Events[inference_pb2.GenerateEvent]


class ChatHandlers:
    """Chat completions over the leader's Inference.Generate."""

    def __init__(self, config: GatewayConfig, leader: Leader, clock: Clock) -> None:
        self._config = config
        self._leader = leader
        self._clock = clock

    async def complete(self, request: web.Request, raw_variables: Mapping[str, str]) -> web.StreamResponse:
        """One request. Raises SwarmError and HttpProblem until something was sent."""
        body = await read_body(request, self._config.body_bytes_max, self._config.read_timeout_s)
        chat = parse_chat_request(body)
        names = shapes.ReplyNames(f"chatcmpl-{uuid.uuid4().hex}", chat.model, int(self._clock.unix_s()))
        order = inference_pb2.GenerateRequest(
            model_id=chat.model, generation=generation_of(chat), request_id=names.completion_id
        )
        async with self._leader.generate(order, self._config.request_timeout_s) as events:
            # Nothing is said before the leader admitted it, so that a refusal is a plain 4xx or 5xx.
            first = await next_event(events)
            if chat.stream:
                return await self._streamed(request, names, chat, first, events)
            return await self._whole(names, first, events)

    async def _whole(
        self, names: shapes.ReplyNames, event: generation_pb2.GenerationEvent, events: GenerateEvents
    ) -> web.Response:
        texts: list[str] = []
        while not event.HasField("done"):
            texts.append(event.tokens.text)
            event = await next_event(events)
        return json_response(shapes.completion(names, "".join(texts), event.done))

    async def _streamed(
        self,
        request: web.Request,
        names: shapes.ReplyNames,
        chat: ChatRequest,
        event: generation_pb2.GenerationEvent,
        events: GenerateEvents,
    ) -> web.StreamResponse:
        stream = EventStream(request, self._config.keep_alive_s, self._config.write_timeout_s)
        try:
            await stream.open()
            await _say(stream, shapes.role_chunk(names, chat.include_usage))
            while not event.HasField("done"):
                if event.tokens.text:
                    await _say(stream, shapes.text_chunk(names, event.tokens.text, chat.include_usage))
                event = await stream.wait(lambda: next_event(events))
            await _say(stream, shapes.last_chunk(names, event.done, chat.include_usage))
            if chat.include_usage:
                await _say(stream, shapes.usage_chunk(names, event.done))
            await stream.send("[DONE]")
            await stream.close()
        except ReaderGone as gone:
            log.info("reader gone", completion=names.completion_id, why=str(gone))
        except (SwarmError, HttpProblem) as error:
            await _say_failure(stream, names, error)
        return stream.response


async def next_event(events: GenerateEvents) -> generation_pb2.GenerationEvent:
    """The next event of a reply. Raises SwarmError for a failure, and for a reply that ends without its Done."""
    message = await events.read()
    if message is None:
        raise StageFailed("the reply broke off before its end")
    if message.event.HasField("failed"):
        failed = message.event.failed
        raise error_from_proto(failed.reason, failed.message, failed.metadata)
    return message.event


async def _say(stream: EventStream, document: dict[str, Any]) -> None:
    await stream.send(json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


async def _say_failure(stream: EventStream, names: shapes.ReplyNames, error: SwarmError | HttpProblem) -> None:
    """A failure after the start: an error event and the end, without [DONE], which would mean success."""
    log.warning("reply failed", completion=names.completion_id, why=str(error))
    try:
        await _say(stream, error_document(error.problem if isinstance(error, HttpProblem) else problem_of(error)))
        await stream.close()
    except ReaderGone as gone:
        log.info("reader gone", completion=names.completion_id, why=str(gone))
