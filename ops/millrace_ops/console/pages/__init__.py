"""The pages, a module for each matter; each page is a function of the console and a request."""
