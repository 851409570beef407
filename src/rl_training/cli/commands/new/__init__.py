"""Commands that write a working start for a part of your own, with its test and config."""
