"""A SCHEDULED kernel's run in predicted cycles: which partition waits for which edge."""
