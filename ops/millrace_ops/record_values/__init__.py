"""What the command line and the console make of the bytes of records: JSON, text, and lines in hexadecimal."""
