"""A load that finds a cover of its stage, and what becomes of that cover while an older stage is still ending."""

import pytest
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import LoadFailed
from swarm_fellow.flows.load import Loader
from swarm_fellow.flows.stages import HeldStage


def spec_of(layer_stop: int) -> stage_pb2.StageSpec:
    return stage_pb2.StageSpec(model_id="tiny/one", placement_id="p1", stage_count=2, layer_stop=layer_stop)


class OneCover:
    """Holds one hot cover."""

    def __init__(self, spec: stage_pb2.StageSpec) -> None:
        self.stage = HeldStage(stage_pb2.StageStatus(spec=spec), order=0)

    def find_hot(self, placement_id: str, stage_index: int) -> HeldStage | None:
        return self.stage

    def take(self, placement_id: str, stage_index: int) -> HeldStage | None:
        stage, self.stage = self.stage, None
        return stage

    async def end(self, placement_id: str, stage_index: int) -> None:
        self.stage = None


class EndingTable:
    """Has an older stage of the placement; while it ends the cover is made anew, as another one."""

    def __init__(self, covers: OneCover, remade: stage_pb2.StageSpec) -> None:
        self.covers, self.remade, self.adopted = covers, remade, []

    def find(self, placement_id: str) -> None:
        return None

    async def wait_ended(self, placement_id: str) -> None:
        self.covers.stage = HeldStage(stage_pb2.StageStatus(spec=self.remade), order=0)

    def adopt(self, stage: HeldStage) -> None:
        self.adopted.append(stage)


class NoFiles:
    """Builds nothing."""

    def check(self, signal: link_pb2.LoadSignal) -> None: ...

    async def fetch(self, spec: stage_pb2.StageSpec, progress: object) -> None:
        raise LoadFailed("no files here")


async def test_a_cover_that_became_another_one_while_an_older_stage_ended_is_not_taken_for_the_stage():
    covers = OneCover(spec_of(layer_stop=4))
    table = EndingTable(covers, remade=spec_of(layer_stop=6))
    loader = Loader(table, NoFiles(), covers)

    with pytest.raises(LoadFailed, match="no files here"):
        await loader.load(link_pb2.LoadSignal(spec=spec_of(layer_stop=4)), lambda step, done, total: None)
    assert not table.adopted and covers.stage is None
