"""Files, bytes and positions: the ground on which everything else stands."""
