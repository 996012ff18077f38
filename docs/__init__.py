"""The docs: pages in Markdown, and what generates some of them."""
