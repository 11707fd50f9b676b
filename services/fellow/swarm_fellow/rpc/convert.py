"""Between our words and the contracts. Builds and reads messages; makes no call."""

from collections.abc import Iterable

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2, stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import SwarmError
from swarm_rpc.reasons import reason_to_proto

from swarm_fellow.domain.capabilities import Declaration
from swarm_fellow.host.hardware import DeviceReading, MachineReading


def known_capabilities() -> tuple[str, ...]:
    """Every capability name of the contract."""
    return tuple(capabilities_pb2.Capabilities.DESCRIPTOR.fields_by_name)


def capabilities_to_proto(declared: Declaration) -> capabilities_pb2.Capabilities:
    """A field for each declared capability; an empty one is still present."""
    return capabilities_pb2.Capabilities(**{name: dict(parameters) for name, parameters in declared.items()})


def devices_to_proto(devices: Iterable[DeviceReading]) -> list[hardware_pb2.Device]:
    """Devices in our order; an unknown figure stays absent."""
    return [
        hardware_pb2.Device(
            device_index=index,
            kind=device.kind,
            name=device.model,
            memory_total_bytes=device.memory_total_bytes,
            memory_free_bytes=device.memory_free_bytes,
            compute_capability=device.compute_capability,
            compute_dtype=device.compute_dtype,
            read_bytes_per_s=device.read_bytes_per_s,
            float32_flops=device.products.float32_flops,
            float16_flops=device.products.float16_flops,
        )
        for index, device in enumerate(devices)
    ]


def machine_to_proto(machine: MachineReading) -> hardware_pb2.Hardware:
    """The machine as it registers."""
    return hardware_pb2.Hardware(
        hostname=machine.hostname,
        platform=machine.platform,
        cpu_count=machine.cpu_count,
        memory_total_bytes=machine.memory_total_bytes,
        devices=devices_to_proto(machine.devices),
        leader_round_trip_ms=machine.leader_round_trip_ms,
        leader_down_bytes_per_s=machine.leader_down_bytes_per_s,
    )


def failure_to_proto(error: SwarmError) -> link_pb2.SignalFailure:
    """A failed signal."""
    return link_pb2.SignalFailure(reason=reason_to_proto(error.why), message=error.message, metadata=error.facts)


def stage_event(
    spec: stage_pb2.StageSpec, kind: link_pb2.StageEventKind, message: str, peer_stage: int | None = None
) -> link_pb2.ConnectRequest:
    """A stage's life changed without a signal. peer_stage: at the other end of a broken link."""
    event = link_pb2.StageEvent(spec=spec, kind=kind, message=message, peer_stage=peer_stage)
    return link_pb2.ConnectRequest(stage_event=event)


# They say where a stage stands or what is done with it, not what it is made of.
_TOLD_LATER = ("epoch", "kv_tokens", "measure_step_costs")


def is_same_stage(held: stage_pb2.StageSpec, told: stage_pb2.StageSpec) -> bool:
    """Whether a process that was built as `held` is what `told` asks to build."""
    one, other = stage_pb2.StageSpec(), stage_pb2.StageSpec()
    for made_of, spec in ((one, held), (other, told)):
        made_of.CopyFrom(spec)
        for name in _TOLD_LATER:
            made_of.ClearField(name)
    return one == other


def describe_stage(spec: stage_pb2.StageSpec) -> str:
    """A stage, for people and logs."""
    return (
        f"stage {spec.stage_index} of {spec.stage_count} of {spec.model_id} (layers {spec.layer_start}-"
        f"{spec.layer_stop - 1})"
    )
