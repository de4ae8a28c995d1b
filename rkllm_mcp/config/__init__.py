"""User configuration -> checked values: ``mcp_config.toml`` or JSON, the environment, and ``model.toml``.

    file ─▶ loading ─▶ expansion (${VAR}) ─▶ claude (other hosts' format) ─▶ overrides ─▶ sections (checked)

Rules: every value of a loaded ``Config`` is checked and frozen; an invalid value is a ``ConfigError`` with file, key,
value and allowed values; this package starts no server, loads no model and prints nothing.
"""
