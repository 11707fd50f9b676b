"""The leader's services, found by their package, so that a new one needs no line here."""

import importlib
import pkgutil

import silentswarm.leader.v1 as leader_v1
from google.protobuf.descriptor import ServiceDescriptor


def leader_services() -> list[ServiceDescriptor]:
    """Every service of silentswarm.leader.v1, by full name."""
    services: list[ServiceDescriptor] = []
    for module in pkgutil.iter_modules(leader_v1.__path__, f"{leader_v1.__name__}."):
        if module.name.endswith("_pb2"):
            services += importlib.import_module(module.name).DESCRIPTOR.services_by_name.values()
    return sorted(services, key=lambda service: service.full_name)
