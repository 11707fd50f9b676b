"""Channels to the leader, and how this machine knows it: a setting, a pin, or the roots it kept. Sends nothing."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import structlog
from swarm_core.errors import SwarmError
from swarm_core.private_file import write_private
from swarm_rpc.channel import dial
from swarm_rpc.leader_trust import (
    VARIABLE,
    check_leader_ca,
    check_plaintext,
    learn_roots,
    pin_of,
    trust_for,
    trust_in,
)
from swarm_rpc.limits import MESSAGE_BYTES_MAX
from swarm_rpc.tls import Trust, check_roots, sha256_of_root
from swarm_rpc.tls_words import explain

from swarm_fellow.domain.state_folder import LEADER_ROOTS

log = structlog.get_logger()


class LeaderDoor:
    """Opens channels once the leader is known.

    leader_ca: SWARM_LEADER_CA. join_token: with the pin of the leader's root behind its last ".", or without.
    The roots that a pin led to are kept, and taken from then on. Nothing is ever sent in plaintext to a leader that was
    known by a certificate before.
    """

    def __init__(self, address: str, leader_ca: str, join_token: str, state_dir: Path, allow_insecure: bool) -> None:
        """Raises BadRequest when the setting is wrong, or when secrets would go to another machine in plaintext."""
        check_leader_ca(leader_ca)
        self.address = address
        self._leader_ca = leader_ca
        self._pin = pin_of(leader_ca) if leader_ca else pin_of(join_token)
        self._roots_file = state_dir / LEADER_ROOTS
        self._is_known = False
        self._trust: Trust | None = None
        if not leader_ca and not self._pin and not self._kept():
            check_plaintext(address, allow_insecure)

    @property
    def trust(self) -> Trust | None:
        """What the leader must prove; None without TLS. Meaningful once a channel was opened."""
        return self._trust

    async def open(self) -> grpc.aio.Channel:
        """A channel to the leader. Raises PermissionDenied (it is another), Unavailable, BadRequest, DiskFull."""
        if not self._is_known:
            self._trust = await self._find_trust()
            self._is_known = True
        return self.dial()

    def dial(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> grpc.aio.Channel:
        """One more channel, once `open` has returned."""
        return dial(self.address, message_bytes_max, self._trust)

    async def explain(self) -> str:
        """Why no channel comes up, as far as TLS is to blame; else empty."""
        by_setting = bool(self._leader_ca) or self._trust is None
        return await explain(self.address, self._trust, VARIABLE if by_setting else str(self._roots_file))

    def take_roots(self, roots: bytes) -> None:
        """The leader tells its roots over a channel that is trusted: kept where a pin is how it is known."""
        if self._trust is None or not roots or (self._leader_ca and not self._pin) or roots == self._trust.roots:
            return
        with contextlib.suppress(SwarmError):
            check_roots(roots, "what the leader tells")
            self._keep(roots)
            self._trust = trust_in(roots)

    def relay_trust(self, relay_address: str, roots: bytes) -> Trust | None:
        """How a relay is known: the leader's own as the leader, another one by its host and any root that we trust.

        roots: of this swarm's certificates, PEM. None where the leader is reached without TLS.
        """
        if self._trust is None or relay_address == self.address:
            return self._trust
        return Trust(roots + self._trust.roots)

    async def _find_trust(self) -> Trust | None:
        if self._leader_ca and not self._pin:
            return await trust_for(self.address, self._leader_ca)
        kept = await asyncio.to_thread(self._kept)
        if kept and (not self._pin or sha256_of_root(kept) == self._pin):
            return trust_in(kept)
        if not self._pin:
            return None
        trust = await learn_roots(self.address, self._pin)
        await asyncio.to_thread(self._keep, trust.roots)
        log.info("the leader's root is the one of the pin; kept from now on", file=str(self._roots_file))
        return trust

    def _kept(self) -> bytes:
        try:
            roots = self._roots_file.read_bytes()
            check_roots(roots, str(self._roots_file))
            sha256_of_root(roots)
        except FileNotFoundError:
            return b""
        except (OSError, ValueError, SwarmError) as error:
            log.warning("the kept roots of the leader cannot be used", file=str(self._roots_file), why=str(error))
            return b""
        return roots

    def _keep(self, roots: bytes) -> None:
        self._roots_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._roots_file, roots.decode("ascii"))
