"""Schedule heuristics of `choose_schedule`; `lowering.cost_model` ranks the candidates."""
