"""What keeps a leader's doors: tokens of people, join tokens of machines, and the calls that hang on either."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import PermissionDenied

from swarm_leader.domain.ports import JoinTokenStore, SecretFile, TokenStore
from swarm_leader.flows.board import Board
from swarm_leader.flows.calls import OpenCalls
from swarm_leader.flows.join_tokens import JoinTokens
from swarm_leader.flows.tokens import Tokens

log = structlog.get_logger()


class Doors:
    """Every part of them. is_required: tokens are asked for even when there is none."""

    def __init__(
        self,
        tokens: TokenStore,
        join_tokens: JoinTokenStore,
        admin_file: SecretFile,
        clock: Clock,
        is_required: bool,
        operators_join_token: str,
        roots_sha256: Callable[[], str],
    ) -> None:
        self.calls = OpenCalls()
        self.tokens = Tokens(tokens, admin_file, self.calls, clock, is_required, show_once)
        self.join_tokens = JoinTokens(join_tokens, clock, operators_join_token, roots_sha256)

    def are_open(self) -> bool:
        """Whether nobody is asked for anything."""
        return not self.tokens.enforced


def show_once(secret: str, file: Path) -> None:
    """Tell of an admin token that the leader made: the secret to a person in front of it, to a log only where it is."""
    log.info("an admin token was made, since nobody had one", file=str(file))
    if sys.stderr.isatty():
        print(f"\nThe admin token of this leader, shown this once and kept in {file}:\n\n  {secret}\n", file=sys.stderr)


def check_fetch(board: Board, fellow_id: str, model_id: str, covering: Collection[str] = ()) -> None:
    """A machine gets the models and adapters it holds a stage of, or is to. Raises PermissionDenied.

    covering: placements it was told to hold a stage of outside of their rings.
    """
    told = [placement for one in covering if (placement := board.by_id(one)) is not None]
    if not any(
        placement.reads(model_id) for placement in [*board.holding(fellow_id), *board.arriving(fellow_id), *told]
    ):
        raise PermissionDenied(f"this machine holds no stage of {model_id} and is to load none", model=model_id)
