"""Commands that list what there is to choose from, measure an environment, and complete command lines."""
