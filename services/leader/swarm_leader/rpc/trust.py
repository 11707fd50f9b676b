"""leader.v1.Trust: the roots, and certificates for listeners. Thin: trust/ signs."""

import asyncio

import grpc
from silentswarm.leader.v1 import trust_pb2, trust_pb2_grpc
from swarm_rpc.tls import sha256_of_root

from swarm_leader.trust.identity import LeaderIdentity


class TrustServicer(trust_pb2_grpc.TrustServicer):
    """The swarm's certificates."""

    def __init__(self, identity: LeaderIdentity) -> None:
        self._identity = identity

    async def GetRoots(
        self, request: trust_pb2.GetRootsRequest, context: grpc.aio.ServicerContext
    ) -> trust_pb2.GetRootsResponse:
        roots = self._identity.roots
        return trust_pb2.GetRootsResponse(roots=roots, sha256=sha256_of_root(roots) if roots else "")

    async def IssueCertificate(
        self, request: trust_pb2.IssueCertificateRequest, context: grpc.aio.ServicerContext
    ) -> trust_pb2.IssueCertificateResponse:
        certificate = await asyncio.to_thread(
            self._identity.certify_listener, request.certificate_request, list(request.names)
        )
        return trust_pb2.IssueCertificateResponse(certificate=certificate)
