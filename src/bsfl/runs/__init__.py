"""Policies x worlds: played in parallel, resumable, with results on disk."""
