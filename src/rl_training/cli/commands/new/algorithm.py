"""`rl new algorithm`: a working start for an algorithm of your own."""

from rl_training.cli.commands.new.files import new_command

COMMAND = new_command("algorithm", "write a working start for an algorithm of your own")
