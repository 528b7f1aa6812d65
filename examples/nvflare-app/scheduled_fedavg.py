"""FedAvg of NVFlare with its clients chosen by bsfl."""

import time

from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from bsfl import BSFL, Scheduler
from bsfl.rounds import RoundPlan, Rounds


class ScheduledFedAvg(BaseFedAvg):
    """`sample_clients` opens a round of the scheduler; `train` follows it to its end."""

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
        plan = RoundPlan(cohort_size=self.num_clients, deadline_s=self.timeout_s)
        self.rounds = Rounds(Scheduler(policy, cohort_size=self.num_clients), plan)
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
        return self.rounds.open([client.name for client in self.engine.get_clients()])

    def train(self, clients: list[str], model: FLModel) -> list[FLModel]:
        """Send a model to clients and return what they learned once the round is over."""
        results: list[FLModel] = []  # filled by NVFlare's own thread
        token = {client: (client, self.current_round) for client in clients}
        self.rounds.sent(token)
        self.send_model(
            targets=clients, data=model, timeout=self.timeout_s, callback=results.append
        )
        while not self.rounds.is_over() and not self.abort_signal.triggered:
            time.sleep(self.rounds.pause_s())
            is_done = not self.get_num_standing_tasks()
            self.rounds.hear({token[result.meta["client_name"]]: "ok" for result in results})
            if is_done and not self.rounds.is_over():  # who has not answered by now will not
                self.rounds.hear(dict.fromkeys(token.values(), "failed"))
        closed = self.rounds.close()
        if self.state_path:
            self.rounds.scheduler.save(self.state_path)
        self.info(f"bsfl: {clients} in {closed.duration_s:.1f} s")
        return results
