"""Commands that compare, draw and export the results of runs."""
