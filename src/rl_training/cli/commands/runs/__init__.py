"""Commands about one run: train, evaluate, resume, watch, check."""
