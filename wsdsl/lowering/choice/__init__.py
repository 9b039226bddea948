"""What `choose_schedule` tries, and what it fills in: see `lowering.model` for how it decides."""
