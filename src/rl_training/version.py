"""The version, in one place: packaging, checkpoints and run.json read it from here."""

__version__ = "0.2.0"
