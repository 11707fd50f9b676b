"""Which stages are held a second time, where, and how: for the day their own fellow is lost. Pure."""
