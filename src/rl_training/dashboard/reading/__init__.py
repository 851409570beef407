"""What the dashboard reads: the runs table, columns of logs, curves, groups and their statistics."""
