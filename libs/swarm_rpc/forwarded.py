"""The mark of a call that is made for somebody else. Decides nothing about it."""

# Metadata of every call that a process makes for its own callers, as the gateway does. It connects from its own
# machine, whoever asked it; where a callee gives its own machine more, this mark takes that back and gives nothing.
FORWARDED = "x-silentswarm-forwarded"
