"""How long a schedule takes: what `choose_schedule`, `choose_mma` and `explain` go by."""
