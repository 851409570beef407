"""What makes the observations of a suite readable for networks: Atari's preprocessing, MiniGrid's codes, pictures."""
