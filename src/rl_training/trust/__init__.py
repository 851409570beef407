"""Protection from untrusted configs: the consent gate, and the seals of runs that were made here."""
