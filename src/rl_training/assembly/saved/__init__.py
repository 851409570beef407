"""Saved policies: loading, using, recording, exporting."""
