"""Many runs together: launching groups and sweeps, statistics and plots, finding and archiving runs."""
