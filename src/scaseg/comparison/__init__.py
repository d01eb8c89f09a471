"""Compare contexts fairly: a queue of trainings, their results, statistics and tables."""
