"""The JSON routes of the RPCs, from their google.api.http annotations. An RPC without an access class has none."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from silentswarm.core.v1 import access_pb2

from swarm_rpc.rest.fields import find_field
from swarm_rpc.rest.table import Table
from swarm_rpc.rest.template import Template

_PATTERNS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True)
class Route:
    """One way to call an RPC with JSON.

    access: an ACCESS_* number, never UNSPECIFIED. body: "" none, "*" the whole request, else the field it fills.
    """

    http_method: str
    template: Template
    method: MethodDescriptor
    access: int
    body: str

    @property
    def full_method(self) -> str:
        """The RPC's name on the wire, "/package.Service/Method"."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of messages."""
        return self.method.server_streaming


def routes_of(services: Iterable[ServiceDescriptor]) -> list[Route]:
    """Every route of the services, additional bindings included, in declaration order.

    Raises ValueError when an annotation names a field that is not there, or an annotated RPC reads a stream.
    """
    return [route for service in services for method in service.methods for route in _routes_of_method(method)]


def route_table(routes: Iterable[Route]) -> Table[Route]:
    """The same routes, to be found by path. Raises ValueError when two of them match the same paths."""
    table: Table[Route] = Table()
    for route in routes:
        table.add(route.http_method, route.template, route)
    return table


def _routes_of_method(method: MethodDescriptor) -> Iterator[Route]:
    options = method.GetOptions()
    access = options.Extensions[access_pb2.access]
    if not options.HasExtension(annotations_pb2.http) or access == access_pb2.ACCESS_UNSPECIFIED:
        return
    if method.client_streaming:
        raise ValueError(f"{method.full_name} reads a stream and cannot have a JSON route")
    rule = options.Extensions[annotations_pb2.http]
    for binding in (rule, *rule.additional_bindings):
        http_method, text = _pattern(binding, method)
        template = Template.parse(text)
        _check_fields(method.input_type, template, binding.body, method)
        yield Route(http_method, template, method, access, binding.body)


def _pattern(rule: http_pb2.HttpRule, method: MethodDescriptor) -> tuple[str, str]:
    kind = rule.WhichOneof("pattern")
    if kind == "custom":
        return rule.custom.kind.upper(), rule.custom.path
    if kind not in _PATTERNS:
        raise ValueError(f"{method.full_name} has a google.api.http annotation without a path")
    return kind.upper(), getattr(rule, kind)


def _check_fields(request: Descriptor, template: Template, body: str, method: MethodDescriptor) -> None:
    for variable in template.variables:
        field = find_field(request, variable.field_path)
        if field is None or field.is_repeated or field.message_type is not None:
            raise ValueError(f"{method.full_name}: {{{variable.field_path}}} is not one plain field of its request")
    if body not in ("", "*") and body not in request.fields_by_name:
        raise ValueError(f"{method.full_name}: body {body!r} is not a field of its request")
