"""Starting many runs: groups of seeds, sweeps, searches for hyperparameters."""
