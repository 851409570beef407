"""`rl new env`: a working start for an environment of your own."""

from rl_training.cli.commands.new.files import new_command

COMMAND = new_command("env", "write a working start for an environment of your own")
