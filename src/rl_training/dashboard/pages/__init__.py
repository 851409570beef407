"""What single pages of the dashboard show: a run, sweeps and searches, alerts."""
