"""Commands about config files. No user code is imported."""
