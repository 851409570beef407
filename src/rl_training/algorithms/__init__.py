"""Algorithms: one file each, read top to bottom. `on_policy` holds what REINFORCE, A2C and PPO share."""
