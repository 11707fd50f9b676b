from google.api import annotations_pb2 as _annotations_pb2
from silentswarm.core.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApiToken(_message.Message):
    __slots__ = ("token_id", "label", "scopes", "created_s", "expires_s", "revoked_s", "last_used_s", "usage")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
    REVOKED_S_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_S_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    created_s: int
    expires_s: int
    revoked_s: int
    last_used_s: int
    usage: TokenUsage
    def __init__(self, token_id: _Optional[str] = ..., label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., created_s: _Optional[int] = ..., expires_s: _Optional[int] = ..., revoked_s: _Optional[int] = ..., last_used_s: _Optional[int] = ..., usage: _Optional[_Union[TokenUsage, _Mapping]] = ...) -> None: ...

class TokenUsage(_message.Message):
    __slots__ = ("requests", "prompt_tokens", "completion_tokens", "cancelled")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cancelled: int
    def __init__(self, requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cancelled: _Optional[int] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("label", "scopes", "expires_in_s")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    label: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    expires_in_s: int
    def __init__(self, label: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., expires_in_s: _Optional[int] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    token: ApiToken
    secret: str
    def __init__(self, token: _Optional[_Union[ApiToken, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens", "enforced")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[ApiToken]
    enforced: bool
    def __init__(self, tokens: _Optional[_Iterable[_Union[ApiToken, _Mapping]]] = ..., enforced: _Optional[bool] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSelfRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSelfResponse(_message.Message):
    __slots__ = ("enforced", "token")
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    enforced: bool
    token: ApiToken
    def __init__(self, enforced: _Optional[bool] = ..., token: _Optional[_Union[ApiToken, _Mapping]] = ...) -> None: ...

class JoinToken(_message.Message):
    __slots__ = ("join_token_id", "label", "created_s", "expires_s", "uses_left", "used", "revoked_s")
    JOIN_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
    USES_LEFT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_S_FIELD_NUMBER: _ClassVar[int]
    join_token_id: str
    label: str
    created_s: int
    expires_s: int
    uses_left: int
    used: int
    revoked_s: int
    def __init__(self, join_token_id: _Optional[str] = ..., label: _Optional[str] = ..., created_s: _Optional[int] = ..., expires_s: _Optional[int] = ..., uses_left: _Optional[int] = ..., used: _Optional[int] = ..., revoked_s: _Optional[int] = ...) -> None: ...

class CreateJoinTokenRequest(_message.Message):
    __slots__ = ("label", "expires_in_s", "uses")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    label: str
    expires_in_s: int
    uses: int
    def __init__(self, label: _Optional[str] = ..., expires_in_s: _Optional[int] = ..., uses: _Optional[int] = ...) -> None: ...

class CreateJoinTokenResponse(_message.Message):
    __slots__ = ("join_token", "secret")
    JOIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    join_token: JoinToken
    secret: str
    def __init__(self, join_token: _Optional[_Union[JoinToken, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListJoinTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJoinTokensResponse(_message.Message):
    __slots__ = ("join_tokens",)
    JOIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    join_tokens: _containers.RepeatedCompositeFieldContainer[JoinToken]
    def __init__(self, join_tokens: _Optional[_Iterable[_Union[JoinToken, _Mapping]]] = ...) -> None: ...

class RevokeJoinTokenRequest(_message.Message):
    __slots__ = ("join_token_id",)
    JOIN_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    join_token_id: str
    def __init__(self, join_token_id: _Optional[str] = ...) -> None: ...

class RevokeJoinTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
