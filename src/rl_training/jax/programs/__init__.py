"""Compiled programs: kept on disk, and shared by the runs of a process."""
