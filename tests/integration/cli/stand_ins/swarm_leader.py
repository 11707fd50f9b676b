"""Runs in the place of the leader under `swarm up`: the scripted one, at the port `swarm up` chose.

SCRIPTED_NOT_READY: the reason it takes no work. SCRIPTED_LOADING: a load never ends. SCRIPTED_TOO_LARGE: it is refused.
"""

import os
import signal

from silentswarm.leader.v1 import serving_pb2

from tests.integration.cli.scripted_leader import ScriptedLeader, serve, stages

if __name__ == "__main__":
    ready = serving_pb2.ModelStatus(
        model_id="tiny", state=serving_pb2.PLACEMENT_STATE_READY, stages=stages("loaded"), context_tokens=4096
    )
    leader = ScriptedLeader(
        load_ends=(ready,),
        never_loaded=bool(os.environ.get("SCRIPTED_LOADING")),
        too_large=bool(os.environ.get("SCRIPTED_TOO_LARGE")),
        endless=True,
        not_ready=os.environ.get("SCRIPTED_NOT_READY", ""),
    )
    with serve(leader, int(os.environ["SWARM_GRPC_PORT"])):
        signal.sigwait({signal.SIGTERM})
