"""The placement ledger over random histories, on real SQLite: writes, epochs, crashes at any point.

A crash is what a killed leader leaves on the disk: the files are copied while a write is somewhere on its way, and the
copy is opened as the next leader opens it.
"""

import asyncio
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from swarm_core.errors import StaleEpoch
from swarm_leader.domain.records import PlacementRecord, PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.store import Store, open_store

from tests.integration.store.rows import placement

S = PlacementState
MODELS = ("org/large", "org/small")
FILE = "leader.db"
STEPS_MAX = 30  # of the event loop, between the begin of a write and a crash
models = st.sampled_from(MODELS)
# Told as IDLE or FAILED, a placement only says why nothing is held; the model's next load is a placement of its own.
OVER = frozenset({S.IDLE, S.FAILED, S.UNLOADED})


@dataclass(frozen=True)
class Write:
    """One change of a placement, and its line in the log."""

    record: PlacementRecord
    what: str


@cache
def empty_database() -> bytes:
    """A database of the newest schema, made once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        asyncio.run(make_database(file))
        return file.read_bytes()


async def make_database(file: Path) -> None:
    """Opened and closed."""
    async with await open_store(f"sqlite:///{file}"):
        pass


class LedgerHistories(RuleBasedStateMachine):
    """The model keeps what was acknowledged: each model's newest record, and every line of the log."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-"))
        self.lives = 0
        self.newest: dict[str, PlacementRecord] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.epochs: dict[str, int] = defaultdict(int)
        self.overtaken: list[Placement] = []
        self.writes = 0
        (self.folder / FILE).write_bytes(empty_database())
        self.runner.run(self.open(self.folder))

    async def open(self, folder: Path) -> None:
        """A leader starts on what lies there."""
        self.store: Store = await open_store(f"sqlite:///{folder / FILE}")
        self.folder = folder
        self.board = Board(self.store.ledger)
        self.overtaken.clear()
        for record in await self.store.ledger.open():
            self.board.adopt(record)

    def what(self) -> str:
        self.writes += 1
        return f"write {self.writes}"

    def acknowledge(self, write: Write) -> None:
        record = write.record
        assert record.epoch >= self.epochs[record.model_id]
        self.newest[record.model_id] = record
        self.epochs[record.model_id] = record.epoch
        self.logs[record.placement_id].append(write.what)

    @rule(model_id=models)
    def load(self, model_id: str) -> None:
        """A new placement of a model, whatever became of the one before."""
        self.runner.run(self._load(model_id))

    async def _load(self, model_id: str) -> None:
        epoch = await self.board.next_epoch(model_id)
        assert epoch > self.epochs[model_id]
        before = self.board.get(model_id)
        write = Write(placement(model_id, epoch), self.what())
        await self.board.begin(write.record, write.what)
        self.acknowledge(write)
        if before is not None:
            self.overtaken.append(before)

    @rule(model_id=models, state=st.sampled_from(S), epochs_on=st.integers(-1, 2))
    def move(self, model_id: str, state: PlacementState, epochs_on: int) -> None:
        """Some state at some epoch: written whole, or refused with nothing changed."""
        shown = self.board.get(model_id)
        if shown is not None:
            self.runner.run(self._move(shown, state, epochs_on))

    async def _move(self, shown: Placement, state: PlacementState, epochs_on: int) -> None:
        old, what = shown.record, self.what()
        wanted = replace(old, state=state, epoch=old.epoch + epochs_on, reason=what)
        try:
            await self.board.save(shown, lambda record: wanted, what)
        except StaleEpoch:
            assert shown.record == old
            return
        assert epochs_on >= 0, "an older epoch was written"
        assert not (old.state in OVER and state.holds_memory), "what is over holds memory again"
        assert shown.record == wanted
        self.acknowledge(Write(wanted, what))

    @precondition(lambda self: self.overtaken)
    @rule(number=st.integers(0, 100), state=st.sampled_from(S))
    def one_that_was_overtaken_wakes_up(self, number: int, state: PlacementState) -> None:
        """A flow that slept over the next load changes nothing."""
        late = self.overtaken[number % len(self.overtaken)]
        refused = self.runner.run(is_refused(self.board, late, state))

        assert refused

    @rule()
    def restart(self) -> None:
        self.runner.run(self._restart())

    async def _restart(self) -> None:
        await self.store.close()
        await self.open(self.folder)

    @rule(model_id=models, loop_steps=st.integers(0, STEPS_MAX))
    def crash_in_mid_write(self, model_id: str, loop_steps: int) -> None:
        self.runner.run(self._crash(model_id, loop_steps))

    async def _crash(self, model_id: str, loop_steps: int) -> None:
        epoch = await self.board.next_epoch(model_id)
        write = Write(placement(model_id, epoch), self.what())
        writing = asyncio.create_task(self.board.begin(write.record, write.what))
        for _ in range(loop_steps):
            await asyncio.sleep(0)
        is_acknowledged = writing.done()
        self.lives += 1
        left = self.folder.parent / f"{self.folder.name}-{self.lives}"
        shutil.copytree(self.folder, left)
        dead, dead_folder = self.store, self.folder
        await writing
        await dead.close()
        shutil.rmtree(dead_folder)
        await self.open(left)
        found = await self.store.ledger.latest(model_id)
        if is_acknowledged or (found is not None and found.epoch == epoch):
            assert found == write.record
            self.acknowledge(write)

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self._check())

    async def _check(self) -> None:
        for model_id in MODELS:
            assert await self.store.ledger.latest(model_id) == self.newest.get(model_id)
            shown = self.board.get(model_id)
            kept = self.newest.get(model_id)
            is_shown = kept is not None and (shown is not None or kept.state is not S.UNLOADED)
            assert (shown.record if shown else None) == (kept if is_shown else None)
        for placement_id, lines in self.logs.items():
            events = await self.store.ledger.events(placement_id)
            assert [event.what for event in events] == lines
            assert [event.epoch for event in events] == sorted(event.epoch for event in events)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)


async def is_refused(board: Board, late: Placement, state: PlacementState) -> bool:
    """Whether a placement that is not its model's newest may not be changed."""
    try:
        await board.save(late, lambda record: replace(record, state=state), "too late")
    except StaleEpoch:
        return True
    return False


TestLedgerHistories = LedgerHistories.TestCase
TestLedgerHistories.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)
