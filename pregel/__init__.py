"""A bulk-synchronous engine for workflows that pause for people and survive crashes."""
