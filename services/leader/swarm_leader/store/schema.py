"""The tables. Their history is in migrations/; a test holds the two together."""

import sqlalchemy as sa

_NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
}
metadata = sa.MetaData(naming_convention=_NAMES)
_Counter = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # only INTEGER counts up by itself on SQLite

fellows = sa.Table(
    "fellows",
    metadata,
    sa.Column("fellow_id", sa.Text, primary_key=True),
    sa.Column("identity", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("hardware", sa.LargeBinary, nullable=False),
    sa.Column("capabilities", sa.LargeBinary, nullable=False),
    sa.Column("joined_s", sa.Double, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False),
    sa.Column("credential_sha256", sa.Text, nullable=False, server_default=""),
    sa.Column("credential_confirmed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("joined_by", sa.Text, nullable=False, server_default=""),
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("pool", sa.Text, nullable=False, server_default="main"),
)

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("token_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("created_s", sa.BigInteger, nullable=False),
    sa.Column("expires_s", sa.BigInteger, nullable=True),
    sa.Column("revoked_s", sa.BigInteger, nullable=True),
    sa.Column("last_used_s", sa.BigInteger, nullable=True),
    sa.Column("by_leader", sa.Boolean, nullable=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    sa.Column("cancelled", sa.BigInteger, nullable=False),
)

join_tokens = sa.Table(
    "join_tokens",
    metadata,
    sa.Column("join_token_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("created_s", sa.BigInteger, nullable=False),
    sa.Column("expires_s", sa.BigInteger, nullable=False),
    sa.Column("uses_left", sa.BigInteger, nullable=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("revoked_s", sa.BigInteger, nullable=True),
)

placements = sa.Table(
    "placements",
    metadata,
    sa.Column("placement_id", sa.Text, primary_key=True),
    sa.Column("model_id", sa.Text, nullable=False, index=True),
    sa.Column("manifest_sha256", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("transport", sa.Text, nullable=False),
    sa.Column("dtype", sa.Text, nullable=False),
    sa.Column("context_tokens", sa.BigInteger, nullable=False),
    sa.Column("kv_tokens", sa.BigInteger, nullable=False),
    sa.Column("in_flight_max", sa.BigInteger, nullable=False),
    sa.Column("created_s", sa.Double, nullable=False),
    sa.Column("notes", sa.JSON, nullable=False),
    sa.Column("batch_max", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("quantization", sa.Text, nullable=False, server_default="none"),
    sa.Column("quantization_asked", sa.Text, nullable=False, server_default=""),
    sa.Column("storage_dtype", sa.Text, nullable=False, server_default=""),
    sa.Column("weights_model_id", sa.Text, nullable=False, server_default=""),
    sa.Column("adapters", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("codec", sa.Text, nullable=False, server_default=""),
    sa.Column("predicted_tokens_per_s", sa.Double, nullable=True),
)

placement_stages = sa.Table(
    "placement_stages",
    metadata,
    sa.Column("placement_id", sa.Text, sa.ForeignKey("placements.placement_id"), primary_key=True),
    sa.Column("stage_index", sa.Integer, primary_key=True, autoincrement=False),
    # Not a foreign key: the ledger outlives the machine's row and may name one that never came back.
    sa.Column("fellow_id", sa.Text, nullable=False),
    sa.Column("layer_start", sa.Integer, nullable=False),
    sa.Column("layer_stop", sa.Integer, nullable=False),
    sa.Column("weight_bytes", sa.BigInteger, nullable=False),
    sa.Column("kv_bytes", sa.BigInteger, nullable=False),
    sa.Column("working_bytes", sa.BigInteger, nullable=False),
    sa.Column("free_bytes", sa.BigInteger, nullable=True),
    sa.Column("route", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("devices", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("codec_in", sa.Text, nullable=False, server_default=""),
    sa.Column("codec_out", sa.Text, nullable=False, server_default=""),
    sa.Column("inner_codecs", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("quantization", sa.Text, nullable=False, server_default=""),
    sa.Column("weight_bytes_measured", sa.BigInteger, nullable=True),
    sa.Column("predicted_ms", sa.Double, nullable=True),
)

# Append-only: triggers of the first migration refuse UPDATE and DELETE.
placement_events = sa.Table(
    "placement_events",
    metadata,
    sa.Column("sequence", _Counter, primary_key=True, autoincrement=True),
    sa.Column("placement_id", sa.Text, sa.ForeignKey("placements.placement_id"), nullable=False, index=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("at_s", sa.Double, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("incident_id", sa.Text, primary_key=True),
    # Not foreign keys: an incident is read long after its placement, and outlives what it names.
    sa.Column("placement_id", sa.Text, nullable=False),
    sa.Column("model_id", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("opened_s", sa.Double, nullable=False, index=True),
    sa.Column("stages", sa.JSON, nullable=False),
    sa.Column("lost", sa.JSON, nullable=False),
    sa.Column("replacements", sa.JSON, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("log", sa.JSON, nullable=False),
    sa.Column("closed_s", sa.Double, nullable=True),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("detected_ms", sa.Double, nullable=True),
    sa.Column("recovered_ms", sa.Double, nullable=True),
)

# One row that is_writable overwrites: a write that changes nothing would not touch the disk.
write_probe = sa.Table(
    "write_probe",
    metadata,
    sa.Column("probe", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_s", sa.Double, nullable=False),
)

# Figures of a pool (fellow_id "") or of a machine, over one minute or hour; pruned.
metric_rows = sa.Table(
    "metric_rows",
    metadata,
    sa.Column("resolution_s", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("pool", sa.Text, primary_key=True),
    sa.Column("fellow_id", sa.Text, primary_key=True),
    sa.Column("at_s", sa.BigInteger, primary_key=True, autoincrement=False, index=True),
    sa.Column("figures", sa.JSON, nullable=False),
)

# What happened to machines: appended and pruned, never changed.
node_events = sa.Table(
    "node_events",
    metadata,
    sa.Column("sequence", _Counter, primary_key=True, autoincrement=True),
    sa.Column("at_s", sa.Double, nullable=False),
    sa.Column("pool", sa.Text, nullable=False, index=True),
    sa.Column("fellow_id", sa.Text, nullable=False),
    sa.Column("fellow_name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("words", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
