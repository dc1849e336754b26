"""Report: figures of runs and results, films of policies, and web pages."""
