"""What fellows say in words: believed, but not at any length. It is kept in records and repeated to people."""

WORDS_MAX = 4096  # characters; the last lines of a stage's log, and more
_CUT = " ... "


def cut_words(text: str, characters_max: int = WORDS_MAX) -> str:
    """The text when it fits, else its beginning and its end."""
    if len(text) <= characters_max:
        return text
    side = (characters_max - len(_CUT)) // 2
    return text[:side] + _CUT + text[-side:]
