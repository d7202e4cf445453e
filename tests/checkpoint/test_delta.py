"""Growing values are stored by what was added: in proportion, and exactly."""

from hypothesis import given
from hypothesis import strategies as st

from pregel.checkpoint import Growth, grown, is_addition


@given(st.lists(st.integers(min_value=1, max_value=5_000), min_size=1, max_size=200))
def test_what_is_written_is_at_most_three_times_what_there_is(additions: list[int]) -> None:
    """Whatever the sizes; a reader follows additions no longer than the full value below them."""
    growth: Growth | None = None
    size = written = 0
    for version, addition in enumerate(additions, 1):
        size += addition
        if growth is not None and is_addition(growth, addition):
            growth = grown(growth, version, addition)
            written += addition
        else:
            growth = Growth(version, size, 0)
            written += size
        assert growth.added <= growth.full
        assert written <= 3 * size


def test_nothing_is_added_to_what_is_not_stored() -> None:
    """The first version of a value is a full one."""
    assert not is_addition(None, 1)
