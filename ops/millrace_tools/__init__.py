"""Programs for work on Millrace, which no wheel has.

They make message types, pages, the site and releases, and judge histories.
"""
