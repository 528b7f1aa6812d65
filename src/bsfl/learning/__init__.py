"""Training tasks for the simulator: data sets, models and local training."""
