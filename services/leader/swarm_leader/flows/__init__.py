"""What happens in which order: joins, loads, replies, faults. Decisions are domain's, words on the wire rpc's."""
