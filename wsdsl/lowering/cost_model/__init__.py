"""The cost model of `choose_schedule` and `explain`: the predicted duration of a schedule."""
