"""NaN and Inf inside compiled programs, named by the host."""
