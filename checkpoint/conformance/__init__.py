"""What every saver must pass, also third parties'.

Give it a fixture and pytest runs every promise of `Saver` against a saver of yours:

    class TestMySaver(SaverConformance):
        @pytest.fixture
        def saver(self):
            with MySaver() as saver:
                yield saver

Each check gets a saver that keeps nothing yet. `pytest.register_assert_rewrite("pregel.checkpoint.conformance")` in a
`conftest.py` makes failures tell the values. This folder itself needs no pytest.
"""

from __future__ import annotations

from .kit import Writer, commit, ids, record, refusal
from .listing import Listing, Names
from .reading import Reading
from .together import Together, Twins
from .writing import Writing

__all__ = ["SaverConformance", "Writer", "commit", "ids", "record", "refusal"]


class SaverConformance(Reading, Writing, Names, Listing, Together, Twins):
    """Every promise of `Saver` as a test method that takes the fixture `saver`."""
