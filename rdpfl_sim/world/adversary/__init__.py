"""Byzantine clients: placement, observations, schedules and timing."""
