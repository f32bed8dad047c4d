"""A chat model: messages in, one completion out, over any OpenAI-compatible endpoint."""

from __future__ import annotations

from shared.clients.chat.http import HttpChat
from shared.clients.chat.opening import open_chat
from shared.clients.chat.protocol import (
    ChatModel,
    Completion,
    Message,
    NoCompletion,
    ReplySchema,
    completion_or_reason,
    estimated_tokens,
    spent,
)
from shared.clients.chat.replies import read_completion, without_reasoning

__all__ = [
    "ChatModel",
    "Completion",
    "HttpChat",
    "Message",
    "NoCompletion",
    "ReplySchema",
    "completion_or_reason",
    "estimated_tokens",
    "open_chat",
    "read_completion",
    "spent",
    "without_reasoning",
]
