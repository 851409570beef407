"""Starting many runs: groups of seeds, sweeps, hyperparameter searches."""
