"""Remote collection (`env.collector: ray`): environments live in runners, which act and send back what they saw."""
