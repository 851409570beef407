"""Commands that train many runs: sweeps and searches, and what groups of seeds share with them."""
