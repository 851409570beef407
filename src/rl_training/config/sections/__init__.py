"""Sections of a config, each a frozen dataclass with one sentence per field."""
