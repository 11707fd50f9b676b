"""Sessions, scheduling and admission of a stage. No torch, no gRPC: the model is a Compute, links are callables."""
