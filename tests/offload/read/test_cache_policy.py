from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offload.read.chunk_cache import CachePolicy, Name


def name(number: int) -> Name:
    return number.to_bytes(16, "big"), 128


def read(policy: CachePolicy, number: int, *, is_scan: bool = False) -> bool:
    """Read as a reader does: use the chunk if it is cached, else fetch it. Return True if it was cached."""
    if name(number) in policy:
        policy.use(name(number))
        return True
    policy.admit(name(number), 1, is_scan=is_scan)
    return False


def warm_policy() -> CachePolicy:
    """Return a policy of 100 bytes, with chunks 0 to 39 each read three times."""
    policy = CachePolicy(100)
    for _ in range(3):
        for number in range(40):
            read(policy, number)
    return policy


def test_what_is_asked_for_first_is_kept_and_what_a_scan_reads_is_not() -> None:
    policy = CachePolicy(100)
    assert [read(policy, 1), read(policy, 1)] == [False, True]
    assert [read(policy, 2, is_scan=True), read(policy, 2, is_scan=True)] == [False, False]
    assert read(policy, 2, is_scan=True)


def test_a_scan_takes_nothing_from_what_is_used_again_and_again() -> None:
    policy = warm_policy()
    for number in range(1_000, 11_000):
        read(policy, number, is_scan=True)
    assert sum(read(policy, number) for number in range(40)) == 40
    assert policy.held_bytes == 40


def test_nor_does_a_scan_that_comes_back_for_more_than_would_fit() -> None:
    policy = warm_policy()
    for _ in range(3):
        for number in range(1_000, 1_500):
            assert not read(policy, number, is_scan=True)
    assert sum(read(policy, number) for number in range(40)) == 40


def test_nor_do_reads_that_ask_once_for_each_of_very_many() -> None:
    policy = warm_policy()
    for number in range(1_000, 11_000):
        read(policy, number)
    assert sum(read(policy, number) for number in range(40)) == 40
    assert policy.held_bytes == 100


def test_a_scan_of_what_fits_is_kept_from_its_second_time_on() -> None:
    policy = CachePolicy(100)
    hits = [sum(read(policy, number, is_scan=True) for number in range(50)) for _ in range(4)]
    assert hits == [0, 0, 50, 50]


def test_what_went_too_early_comes_back_to_stay() -> None:
    policy = CachePolicy(20)
    read(policy, 0)
    for number in range(1, 21):
        read(policy, number)
    assert name(0) not in policy
    assert not read(policy, 0)
    for number in range(100, 200):
        read(policy, number)
    assert name(0) in policy


def test_a_chunk_of_more_than_a_quarter_is_not_kept() -> None:
    policy = CachePolicy(100)
    assert policy.admit(name(1), 26, is_scan=False) is None
    assert policy.admit(name(1), 25, is_scan=False) == []


def test_what_is_removed_makes_room_whichever_queue_has_it() -> None:
    policy = CachePolicy(100)
    policy.admit(name(1), 10, is_scan=False)
    policy.restore(name(2), 20)
    assert policy.held_bytes == 30
    policy.remove(name(1))
    assert policy.held_bytes == 20
    policy.remove(name(2))
    assert (policy.held_bytes, len(policy)) == (0, 0)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["read", "scan", "remove", "restore"]), st.integers(0, 30), st.integers(1, 30)),
        max_size=200,
    )
)
def test_the_limit_holds_and_whoever_went_is_named(steps: list[tuple[str, int, int]]) -> None:
    policy = CachePolicy(100)
    held: dict[Name, int] = {}
    for step, number, size_bytes in steps:
        one = name(number)
        if step == "remove":
            policy.remove(one)
            held.pop(one, None)
        elif one in policy:
            policy.use(one)
        else:
            if step == "restore":
                gone = policy.restore(one, size_bytes)
            else:
                gone = policy.admit(one, size_bytes, is_scan=step == "scan")
            if gone is None:
                assert one not in policy
            else:
                for other in gone:
                    del held[other]
                held[one] = size_bytes
        assert policy.held_bytes == sum(held.values()) <= 100
        assert len(policy) == len(held)
        assert all(other in policy for other in held)
