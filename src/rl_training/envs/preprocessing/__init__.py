"""Preprocessing wrappers: Atari, MiniGrid's codes, rendered images, action repeat, partial observations."""
