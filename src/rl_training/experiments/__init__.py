"""Many runs together: groups of seeds, their statistics and their plots. Nothing here trains; runs are processes."""
