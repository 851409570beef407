"""Commands about Ray clusters: start one on this machine, check one before it is used, end it."""
