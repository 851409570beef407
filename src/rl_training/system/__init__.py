"""The operating system: files, signals, threads, memory, processes, and text for terminals."""
