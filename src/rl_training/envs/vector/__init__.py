"""Vector environments of this process: sub-environments stepped in turn, and those that a suite implements itself."""
