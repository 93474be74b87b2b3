"""Words and expansion: shell scripts, command strings and interpolation, all with spans."""
