"""Files that describe many runs around one config: sweeps and hyperparameter searches."""
