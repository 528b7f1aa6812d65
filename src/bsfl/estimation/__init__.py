"""What is believed of a client: each part owns its settings, its checks and its piece of state."""
