"""The exit codes of `rl`, and the sentence about them on its help page."""

EXIT_FAILURE, EXIT_USAGE, EXIT_DIFFERENT = 1, 2, 3
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 130, 141

EXIT_CODES = (
    "0 done, 1 failure, 2 usage or config, 3 checked and different, "
    "130 and 143 stopped by SIGINT and SIGTERM, 75 by SIGUSR1 ('rl resume' continues)"
)
