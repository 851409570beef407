"""Beyond one process: executors that start runs here, in a SLURM queue or on a Ray cluster, and that cluster itself."""
