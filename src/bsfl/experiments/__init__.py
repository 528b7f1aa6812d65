"""Scenarios, the grid of policies x seeds, results on disk and what they amount to."""
