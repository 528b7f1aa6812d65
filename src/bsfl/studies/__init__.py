"""Questions asked of the simulator: the leaderboard, ablations, tuning, the paper's figures."""
