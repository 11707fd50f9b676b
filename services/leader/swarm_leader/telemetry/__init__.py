"""How healthy machines are, told from what the leader hears anyway: windows, grades, history, events, alerts."""
