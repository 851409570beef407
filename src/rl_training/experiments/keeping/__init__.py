"""Finding, checking and keeping runs: tracker, filters, verification, cleanup, archives."""
