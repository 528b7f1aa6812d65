"""A Flower app that plays rounds under several schedulers in turn."""
