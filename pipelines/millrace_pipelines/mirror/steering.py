"""What a command does to the states of mirrored topics: which ones it means, pauses and resumes. It is pure.

    state        pause             resume
    mirroring    paused            begun again, as are its stopped partitions
    paused       left as it is     mirroring
    stopped      paused            mirroring, in spite of what is accepted
    switching    refused           refused: the switch-over is to be completed
    switched     refused           refused: the topic is an ordinary one

Without names, a command leaves alone what it would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from millrace.errors import ClientError, UnknownTopicError
from millrace.suggestions import did_you_mean
from millrace_pipelines.mirror.settings import Accept
from millrace_pipelines.mirror.states import State, TopicState


class SteeringError(ClientError):
    """A topic is in a state in which a command can't do this to it."""


def chosen(states: Mapping[str, TopicState], mirrors: Collection[str], names: Sequence[str]) -> list[TopicState]:
    """Returns the topics of some mirrors that are named: as at the source, at the target, or as NAME/TOPIC.

    Without names it returns all. Raises UnknownTopicError for a name that no topic has.
    """
    own = sorted((one for one in states.values() if one.source in mirrors), key=lambda one: one.key)
    if not names:
        return own
    for name in names:
        if not any(name in _names(one) for one in own):
            known = [each for one in own for each in _names(one)]
            raise UnknownTopicError(
                f"{name} is not mirrored from {' or '.join(sorted(mirrors))}{did_you_mean(name, known)}"
            )
    return [one for one in own if not set(names).isdisjoint(_names(one))]


def paused(state: TopicState) -> TopicState:
    """Returns the state of a topic that is to be paused; raises SteeringError."""
    _check(state, "paused")
    return state if state.state is State.PAUSED else replace(state, state=State.PAUSED, reason="", may_pass=False)


def resumed(state: TopicState, accepted: Iterable[Accept] = ()) -> TopicState:
    """Returns the state of a topic that is to be mirrored again; raises SteeringError."""
    _check(state, "resumed")
    return state.resumed(accepted)


def _names(state: TopicState) -> tuple[str, str, str]:
    return state.topic, state.target_topic, state.key


def _check(state: TopicState, what: str) -> None:
    if state.state is State.SWITCHING:
        raise SteeringError(
            f"{state.key} can't be {what}: it is being switched over; run that command again, which completes it"
        )
    if state.state is State.SWITCHED:
        raise SteeringError(
            f"{state.key} can't be {what}: it was switched over, and {state.target_topic} is a topic as any other; "
            "millrace mirror switch-back has it mirrored the other way"
        )
