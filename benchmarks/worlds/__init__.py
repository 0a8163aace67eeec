"""The proving ground: learning policies in simulated worlds of known truth, at equal budgets of rollouts."""
