"""Training loops, the collector that steps environments, evaluation, and callbacks."""
