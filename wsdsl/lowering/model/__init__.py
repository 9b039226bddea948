"""How long a schedule takes: what `choose_schedule` and `explain` go by."""
