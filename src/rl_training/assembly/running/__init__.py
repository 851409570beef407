"""Assembly of a run: a built trainer and a directory, its callbacks and logs, how it starts, resumes and ends."""
