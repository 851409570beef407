"""What many runs say together: statistics, tables, figures, reports."""
