"""How a round is opened, followed and closed; knows neither a framework nor the simulator."""
