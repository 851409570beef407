"""Detection of non-finite values inside compiled programs."""
