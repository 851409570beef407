"""`rl new network`: a working start for a network of your own."""

from rl_training.cli.commands.new.files import new_command

COMMAND = new_command("network", "write a working start for a network of your own")
