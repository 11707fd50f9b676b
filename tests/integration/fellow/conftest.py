"""After every test here: its leaders are stopped, also when it failed, and no stage process is left."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.fellow.running_fellow import stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    yield
    while ScriptedLeader.running:
        await ScriptedLeader.running.pop().stop()
    assert stage_pids() == [], "a stage outlived its fellow"
