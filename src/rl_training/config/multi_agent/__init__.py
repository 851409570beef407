"""Config sections of runs with several agents: who plays whom, and leagues."""
