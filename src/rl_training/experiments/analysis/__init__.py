"""Analysis of many runs: statistics, tables, figures, reports, exports."""
