"""What the leader tells Prometheus: counters of replies as they happen, gauges read when it is scraped."""
