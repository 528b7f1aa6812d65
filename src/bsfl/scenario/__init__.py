"""Scenario files: one TOML becomes checked specs, and those a world, a task and policies."""
