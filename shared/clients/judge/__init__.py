"""What a judge is: a question and passages in, one grade a passage out, all of them in parallel.

`open_judge` gives the one that the settings name: an OpenAI-compatible model, or the embedded one.
"""

from __future__ import annotations

from shared.clients.judge.opening import open_judge, open_judge_chat
from shared.clients.judge.protocol import Enough, Grading, Judge, JudgePrompts

__all__ = ["Enough", "Grading", "Judge", "JudgePrompts", "open_judge", "open_judge_chat"]
