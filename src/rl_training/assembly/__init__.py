"""From a config to a run: builds every part and connects them."""
