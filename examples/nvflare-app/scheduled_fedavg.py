"""FedAvg of NVFlare with its clients chosen by bsfl."""

import time

from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from bsfl import BSFL, Observation, Scheduler


class ScheduledFedAvg(BaseFedAvg):
    """`sample_clients` asks the scheduler; whoever is sent a model is reported back to it."""

    def __init__(
        self,
        *args: object,
        alpha: float = 1.0,
        timeout_s: int = 600,
        state_path: str = "",
        **kwargs: object,
    ) -> None:
        """Take what NVFlare's FedAvg takes, and the settings of the scheduler.

        Args:
            alpha: Of BSFL.
            timeout_s: Seconds after which a round ends.
            state_path: Where the scheduler is kept; nowhere if empty.
        """
        super().__init__(*args, **kwargs)
        self.alpha, self.timeout_s, self.state_path = alpha, timeout_s, state_path

    def run(self) -> None:
        """Train: choose, send, report, aggregate."""
        policy = BSFL(alpha=self.alpha, tau_max=self.timeout_s)
        self.scheduler = Scheduler(policy, cohort_size=self.num_clients)
        model = self.load_model()
        model.start_round, model.total_rounds = self.start_round, self.num_rounds
        for t in range(self.start_round, self.start_round + self.num_rounds):
            self.current_round = model.current_round = t
            results = self.train(self.sample_clients(self.num_clients), model)
            if results:
                model = self.update_model(model, self.aggregate(results))
                self.save_model(model)

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Return the clients that the scheduler chooses of those that are connected."""
        connected = [client.name for client in self.engine.get_clients()]
        return self.scheduler.select(available=connected, cohort_size=num_clients)

    def train(self, clients: list[str], model: FLModel) -> list[FLModel]:
        """Send a model to clients, wait for their answers, and tell the scheduler."""
        results, seen = [], {}
        start = time.monotonic()

        def hear(result: FLModel) -> None:
            seen[result.meta["client_name"]] = time.monotonic() - start
            results.append(result)

        self.send_model(targets=clients, data=model, timeout=self.timeout_s, callback=hear)
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            time.sleep(0.1)
        waited = time.monotonic() - start
        outcome = "timeout" if waited >= self.timeout_s else "failed"
        missing = Observation(latency=waited, outcome=outcome)
        self.scheduler.observe({client: seen.get(client, missing) for client in clients})
        if self.state_path:
            self.scheduler.save(self.state_path)
        self.info(f"bsfl: {clients} in {waited:.1f} s")
        return results
