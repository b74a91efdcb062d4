"""What must hold in every run: invariants, the books of groups, and judged histories."""
