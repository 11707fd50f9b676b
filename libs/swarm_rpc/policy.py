"""Who may call what, read from the descriptors. An RPC without a class is denied."""

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from silentswarm.core.v1 import access_pb2

_SHARED_SERVICES = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
    "grpc.reflection.v1.ServerReflection",
}


def find_method(full_method: str) -> MethodDescriptor | None:
    """The descriptor of "/package.Service/Method", or None."""
    service_name, _, method_name = full_method.lstrip("/").partition("/")
    try:
        service = descriptor_pool.Default().FindServiceByName(service_name)
    except KeyError:
        return None
    return service.methods_by_name.get(method_name)


def access_of(full_method: str) -> int:
    """The access class of an RPC; ACCESS_UNSPECIFIED when it has none or is not known.

    Health and reflection are not ours to annotate: health is public, reflection is for those who may look.
    """
    service_name = full_method.lstrip("/").partition("/")[0]
    if service_name in _SHARED_SERVICES:
        return access_pb2.ACCESS_PUBLIC if service_name.endswith("Health") else access_pb2.ACCESS_READ
    method = find_method(full_method)
    if method is None:
        return access_pb2.ACCESS_UNSPECIFIED
    return method.GetOptions().Extensions[access_pb2.access]
