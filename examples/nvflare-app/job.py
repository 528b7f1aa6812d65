"""Run the example in NVFlare's simulator.

pip install bsfl nvflare
python examples/nvflare-app/job.py [WORKSPACE [STATE_FILE]]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import FrameworkType, ScriptRunner

from bsfl.integrations.nvflare import ScheduledFedAvg

HERE = Path(__file__).parent


def main(workspace: str, n_clients: int = 4, rounds: int = 12, state_path: str = "") -> None:
    job = FedJob(name="scheduled", min_clients=n_clients)
    persistor = job.to_server(NPModelPersistor(model=np.zeros(2).tolist()), id="persistor")
    controller = ScheduledFedAvg(
        num_clients=2,
        num_rounds=rounds,
        persistor_id=persistor,
        policy="bsfl",
        settings={"alpha": 1.0},
        deadline_s=600.0,
        state_path=state_path,
    )
    job.to_server(controller)
    job.to_clients(ScriptRunner(str(HERE / "client.py"), framework=FrameworkType.NUMPY))
    job.simulator_run(workspace, n_clients=n_clients, threads=n_clients)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), state_path="".join(sys.argv[2:]))
