"""Topics that another directory writes, as far as this log knows.

The log has no topic of that name, because this directory follows the topic. Or it has one, because another directory
has taken the topic over since.

    the mark                     an append                                        `create_topic`
    follows                      `WrittenElsewhere`: it would begin a second      the same, unless the caller takes the
                                 history, at seq 1                                topic over
    is fenced                    `WrittenElsewhere`, unless                       -
                                 `log.append_when_fenced` allows it

ELSEWHERE-1  A mark is durable before this log deletes its topic. The creation of the topic by a takeover ends the mark.
ELSEWHERE-2  A mark keeps the producers and keys that the topic had here, and the topic of a takeover gets them. So a
    repetition of an append is still known.

No I/O.
"""

from __future__ import annotations

from seglog.base.dataclasses import dataclass
from seglog.values.append_key import Key
from seglog.values.producer import Producer


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The mark of one topic. `producers` and `keys` are in the order of a manifest."""

    is_fenced: bool = False
    producers: tuple[tuple[str, Producer], ...] = ()
    keys: tuple[tuple[str, Key], ...] = ()
