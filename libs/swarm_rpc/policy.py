"""Who may call what, and how much at once, read from the descriptors. An RPC without a class is denied."""

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from silentswarm.core.v1 import access_pb2

from swarm_rpc.limits import MESSAGE_BYTES_MAX

# Not ours to annotate. Health is public; reflection and channelz tell what is here, and are an admin's.
_SHARED_SERVICES = {
    "grpc.health.v1.Health": access_pb2.ACCESS_PUBLIC,
    "grpc.reflection.v1alpha.ServerReflection": access_pb2.ACCESS_ADMIN,
    "grpc.reflection.v1.ServerReflection": access_pb2.ACCESS_ADMIN,
    "grpc.channelz.v1.Channelz": access_pb2.ACCESS_ADMIN,
}
# A relay's frames are large, and its server takes them; nothing else on the same port is.
_WITH_FRAMES = ("silentswarm.relay.", "silentswarm.ring.", "silentswarm.stage.")


def find_method(full_method: str) -> MethodDescriptor | None:
    """The descriptor of "/package.Service/Method", or None."""
    service_name, _, method_name = full_method.lstrip("/").partition("/")
    try:
        service = descriptor_pool.Default().FindServiceByName(service_name)
    except KeyError:
        return None
    return service.methods_by_name.get(method_name)


def access_of(full_method: str) -> int:
    """The access class of an RPC; ACCESS_UNSPECIFIED when it has none or is not known."""
    shared = _SHARED_SERVICES.get(full_method.lstrip("/").partition("/")[0])
    if shared is not None:
        return shared
    method = find_method(full_method)
    if method is None:
        return access_pb2.ACCESS_UNSPECIFIED
    return method.GetOptions().Extensions[access_pb2.access]


def request_bytes_max(full_method: str) -> int | None:
    """Largest request of an RPC, in bytes; None: what its server takes."""
    return None if full_method.lstrip("/").startswith(_WITH_FRAMES) else MESSAGE_BYTES_MAX
