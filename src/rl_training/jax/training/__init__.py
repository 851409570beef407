"""The compiled training loop and its evaluation."""
