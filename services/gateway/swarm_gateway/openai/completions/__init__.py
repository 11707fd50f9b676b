"""/v1/completions: plain prompts, without a template."""
