"""One reader per format: a tree of nodes becomes serve units."""
