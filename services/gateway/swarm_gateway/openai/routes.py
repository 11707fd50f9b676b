"""The endpoints of OpenAI's API. Decides no access beyond their classes."""

from functools import partial

from silentswarm.core.v1 import access_pb2
from swarm_core.clock import Clock

from swarm_gateway.config import GatewayConfig
from swarm_gateway.endpoints import Endpoint
from swarm_gateway.leader import Leader
from swarm_gateway.metrics import GatewayMetrics
from swarm_gateway.openai.chat_completions.read import read_chat
from swarm_gateway.openai.completions.read import read_completion
from swarm_gateway.openai.models import ModelHandlers
from swarm_gateway.openai.replies.flow import ReplyFlow
from swarm_gateway.openai.responses.read import read_response


def openai_endpoints(config: GatewayConfig, leader: Leader, clock: Clock, metrics: GatewayMetrics) -> list[Endpoint]:
    """Every endpoint under /v1, and the chat once more under /api/v1."""
    replies = ReplyFlow(config, leader, clock, metrics)
    models = ModelHandlers(config, leader)
    response = partial(replies.answer, read_response)
    completion = partial(replies.answer, read_completion)
    chat = partial(replies.answer, read_chat)
    return [
        Endpoint("GET", "/v1/models", models.list, access_pb2.ACCESS_READ),
        Endpoint("GET", "/v1/models/{model=**}", models.show, access_pb2.ACCESS_READ),
        Endpoint("POST", "/v1/responses", response, access_pb2.ACCESS_OPERATE),
        Endpoint("POST", "/v1/completions", completion, access_pb2.ACCESS_OPERATE),
        Endpoint("POST", "/v1/chat/completions", chat, access_pb2.ACCESS_OPERATE),
        Endpoint("POST", "/api/v1/chat/completions", chat, access_pb2.ACCESS_OPERATE),
    ]
