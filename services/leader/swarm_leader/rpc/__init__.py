"""Thin servicers: parse, call one flow, answer. And the translation between protobuf and the leader's own nouns."""
