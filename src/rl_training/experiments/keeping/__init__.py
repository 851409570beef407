"""Managing runs: index, filters, verification, cleanup, archives."""
