"""Hyperparameter files of the Stable-Baselines3 Zoo as configs of this package."""
