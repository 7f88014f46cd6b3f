"""Programs for work on Millrace, which no wheel has: they make pages, the site and releases, and judge histories."""
