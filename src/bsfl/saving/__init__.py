"""What a scheduler is saved to and loaded from: one file, checked, migrated, written by one."""
